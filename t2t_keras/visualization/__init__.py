"""Pictures of training runs and models."""
