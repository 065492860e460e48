"""The zoo: small trained models that ship with the package."""
