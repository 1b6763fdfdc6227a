"""The outbound guard: every URL that a user gives us is called through here."""
