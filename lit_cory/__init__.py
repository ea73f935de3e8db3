"""CORY: reinforcement-learning fine-tuning of language models by cooperating copies (Ma, Hu et al., NeurIPS 2024)."""
