"""The dashboard: its pages, its sessions, and the native API for signed-in users.

>>> create_app(engine, settings=settings, hub=hub, ui=dashboard)
>>> host.mount("/jobs", jobs.asgi(authenticate=who, ui=dashboard))
"""

from millpond.ui.server import dashboard

__all__ = ["dashboard"]
