"""A product from nothing: its own words, price, stages and route. Run it with `millpond up examples/hello/app.py`."""

from millpond import Job, Millpond
from millpond.api.blueprint import Blueprint
from millpond.api.calls import Call, Reply, reply
from millpond.api.principals import one_account, one_tenant
from millpond.api.routes import PAGES, Route
from millpond.lifecycle import lifecycle

GREETINGS = lifecycle(
    "greetings",
    """
    *        -> asked      submitted
    asked    -> thinking   started
    asked    -> forgotten  canceled expired
    thinking -> said       succeeded
    thinking -> forgotten  failed canceled expired
    """,
    ends="said=succeeded forgotten=failed",
)
app = Millpond()


@app.kind("greeting", lifecycle=GREETINGS, price=2, stages=("remembering", "writing"), expires_in="5m")
async def greeting(job: Job, name: str) -> dict[str, str]:
    await job.stage("remembering")
    await job.log(f"Who was {name}?")
    await job.stage("writing")
    return {"text": f"Hello, {name}!"}


async def greet(call: Call) -> Reply:
    who = {"tenant": one_tenant(call, None), "account": one_account(call, None)}
    made = await call.engine.submit("greeting", {"name": call.params["whom"]}, **who)
    return reply({"greeting": made.id, "status": made.state, "coins": made.available}, 202)


routes = (Route(method="POST", path="/to/{whom}", handle=greet, summary="Greet somebody.", answers={202: dict}), *PAGES)
blueprint = Blueprint(lifecycle=GREETINGS, kinds=tuple(app.kinds.values()), title="Greetings", routes=routes)
