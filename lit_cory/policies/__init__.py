"""What an agent is."""

from lit_cory.policies.build import PolicySettings, build_policies
from lit_cory.policies.full import FullPolicy, full_policies
from lit_cory.policies.policy import Policy
from lit_cory.policies.shared_lora import LoraSettings, SharedLoraPolicy, shared_lora_policies

__all__ = [
    "FullPolicy",
    "LoraSettings",
    "Policy",
    "PolicySettings",
    "SharedLoraPolicy",
    "build_policies",
    "full_policies",
    "shared_lora_policies",
]
