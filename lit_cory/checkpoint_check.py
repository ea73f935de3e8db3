"""Whether a checkpoint has the parts that are written here, with the right types: the file may come from anybody."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lit_cory.errors import UserError
from lit_cory.evaluation import HeldOut
from lit_cory.policies import Policy

Part = dict[str, Any]


def check_structure(saved: Part) -> None:
    """Look at every part that a run goes on from.

    Raises:
        UserError: naming the first part that is not as it is written here.
    """
    for name, good in PARTS.items():
        try:
            fits = good(saved)
        except Exception:  # a missing key, or a value of another type
            fits = False
        if not fits:
            raise UserError(
                f"the checkpoint's {name} can't be used: it is damaged, or was not written here; take another"
            )


def check_moments(saved: Part, agents: Sequence[Policy]) -> None:
    """Compare the optimizers' parameters and moments with the weights that they are of.

    Raises:
        UserError: where their numbers or shapes differ.
    """
    for agent, optimizer in zip(agents, saved["optimizer_states"], strict=True):
        shapes = [parameter.shape for parameter in agent.trainable().values()]
        if optimizer["param_groups"][0]["params"] != list(range(len(shapes))) or any(
            index >= len(shapes) or moments["exp_avg"].shape != shapes[index]
            for index, moments in optimizer["state"].items()
        ):
            raise UserError(f"the checkpoint's optimizer of {agent.name} is of other weights; take another checkpoint")


def weights(saved: Part) -> bool:
    """Tensors by name."""
    found = saved["state_dict"]
    return all(isinstance(name, str) and torch.is_floating_point(value) for name, value in found.items())


def team(saved: Part) -> bool:
    """What the module adds of its own."""
    cory = saved["cory"]
    agents, queries = len(cory["bases"]), len(cory["before_texts"])
    return (
        all(isinstance(text, str) for text in [*cory["bases"], *cory["before_texts"]])
        and is_count(cory["rollouts_done"])
        and isinstance(cory["policies"], dict)
        and sorted(cory["order"]) == list(range(agents))
        and len(cory["updates"]) == agents
        and all(update(state) for state in cory["updates"])
        and all(isinstance(name, str) for name in cory["before"])
        and all(table(part, queries) for samples in cory["before"].values() for part in samples)
    )


def update(state: Part) -> bool:
    """Controllers of one agent."""
    numbers = [state["kl"]["coef"], *state["scaler"]["moments"]]
    return len(numbers) == 4 and all(map(is_number, numbers)) and is_count(state["skipped_in_a_row"])


def table(part: Part, queries: int) -> bool:
    """The answers of one agent before training."""
    kinds: dict[str, type | Any] = {"texts": str, "given": str, "answer": str | None, "correct": bool, "ran_on": bool}
    return part.keys() == HeldOut.__dataclass_fields__.keys() and all(
        isinstance(values, list)
        and len(values) in (0, queries)
        and all(isinstance(value, kinds.get(name, int | float)) for value in values)
        for name, values in part.items()
    )


def optimizers(saved: Part) -> bool:
    """An Adam an agent: its settings as they are made here, its moments in pairs."""
    usual = torch.optim.Adam([torch.zeros(1)]).defaults
    states = saved["optimizer_states"]
    return len(states) == len(saved["cory"]["bases"]) and all(
        len(state["param_groups"]) == 1
        and isinstance(state["param_groups"][0]["params"], list)
        and is_number(state["param_groups"][0]["lr"])
        and all(state["param_groups"][0][key] == value for key, value in usual.items() if key != "lr")
        and all(is_count(index) and moments(each) for index, each in state["state"].items())
        for state in states
    )


def moments(state: Part) -> bool:
    """Adam's state of one parameter."""
    first, second, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
    floats: bool = all(isinstance(x, Tensor) and x.dtype == torch.float32 for x in (first, second, step))
    return (
        floats
        and first.shape == second.shape
        and step.numel() == 1
        and state.keys() <= {"exp_avg", "exp_avg_sq", "step"}
    )


def schedules(saved: Part) -> bool:
    """A schedule an agent; what else they keep is a function without a state."""
    return len(saved["lr_schedulers"]) == len(saved["cory"]["bases"]) and all(
        is_count(state["last_epoch"])
        and is_count(state["_step_count"])
        and all(map(is_number, [*state["base_lrs"], *state["_last_lr"]]))
        and all(not function for function in state["lr_lambdas"])
        and state.keys() <= SCHEDULE
        for state in saved["lr_schedulers"]
    )


SCHEDULE = {
    *("base_lrs", "last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step", "_last_lr", "lr_lambdas"),
    "verbose",
}


def progress(saved: Part) -> bool:
    """The trainer's counts, and the place in the data."""
    loops = saved["loops"]
    counts = [part for loop in loops.values() for name, part in loop.items() if name.endswith("progress")]
    (loader,) = loops["fit_loop"]["state_dict"]["combined_loader"]
    place = loader["_sampler_iter_state"]
    drawn = [place["samples_yielded"], place["sampler_state"]["drawn"], place["sampler_iter_state"]["drawn"]]
    return (
        all(is_count(leaf) for part in counts for leaf in leaves(part))
        and isinstance(loops["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"], bool)
        and all(map(is_count, [*drawn, loader["_num_yielded"], loader["_sampler_iter_yielded"]]))
        and all(is_count(leaf) for leaf in leaves(loops["fit_loop"]["epoch_loop.state_dict"]))
        and all(isinstance(state, dict) for state in saved["callbacks"].values())
    )


def leaves(tree: Any) -> list[Any]:
    """Every value in nested dicts."""
    return [leaf for part in tree.values() for leaf in leaves(part)] if isinstance(tree, dict) else [tree]


def is_count(value: Any) -> bool:
    """A whole number that a run can have counted."""
    return isinstance(value, int) and 0 <= value < 2**48


def is_number(value: Any) -> bool:
    """A finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


PARTS: dict[str, Callable[[Part], bool]] = {
    "team": team,
    "weights": weights,
    "optimizers": optimizers,
    "learning-rate schedules": schedules,
    "progress": progress,
}
