"""A shop on FastAPI and SQLAlchemy that prints pictures: `uvicorn --factory main:make_shop`.

An order is a row of the shop's own table. It exists only if its job exists and its credits are held.
"""

import os
from typing import Annotated

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse
from jobs import app
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from millpond import MillpondError
from millpond.api.mount import Mount
from millpond.engine.access.access import Principal
from millpond.settings import Settings

TENANT = "shop"


class Table(DeclarativeBase):
    pass


class Order(Table):
    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    picture: Mapped[str]
    job: Mapped[str] = mapped_column(default="")


class NewOrder(BaseModel):
    picture: str
    copies: int = Field(default=1, ge=1, le=100)


def who(request: Request) -> Principal | None:
    """In place of real sessions: here, a header names the customer."""
    customer = request.headers.get("x-customer")
    return Principal(scope="client", tenant=TENANT, account=customer, actor="shop") if customer else None


def make_shop(database_url: str | None = None, *, worker: bool = True) -> FastAPI:
    url = database_url or os.environ["DATABASE_URL"]
    sessions = async_sessionmaker(
        create_async_engine(url_for_sqlalchemy(url), poolclass=NullPool), expire_on_commit=False
    )
    jobs = Mount(app, settings=Settings(database_url=url), worker=worker, services=worker)
    shop = FastAPI(lifespan=jobs.lifespan)
    shop.mount("/jobs", jobs.asgi(authenticate=who))

    @shop.exception_handler(MillpondError)
    async def refused(_: Request, error: MillpondError) -> JSONResponse:
        return JSONResponse(error.as_dict(), error.status)

    @shop.post("/orders", status_code=202)
    async def place_order(new: NewOrder, customer: Annotated[str, Header(alias="x-customer")]) -> dict:
        async with sessions.begin() as db:  # order, job and hold: one commit
            order = Order(customer=customer, picture=new.picture)
            db.add(order)
            await db.flush()
            job = await jobs.engine.submit(
                "print",
                new.model_dump(),
                tenant=TENANT,
                account=customer,
                idempotency_key=f"order-{order.number}",
                tx=db,
            )
            order.job = job.id
        return {"order": order.number, "job": f"/jobs/v1/jobs/{job.id}", "credits_left": job.available}

    return shop


def url_for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://")
