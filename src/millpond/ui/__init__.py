"""The dashboard's own door: its pages, its sessions, and the native API once more behind them.

>>> create_app(engine, settings=settings, hub=hub, ui=dashboard)
>>> host.mount("/jobs", jobs.asgi(authenticate=who, ui=dashboard))
"""

from millpond.ui.door import dashboard

__all__ = ["dashboard"]
