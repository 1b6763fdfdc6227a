"""A small product: its own states, price, stages and routes. Run it with `millpond up examples/hello/app.py`."""

import json

from millpond import Job, Millpond
from millpond.product import Call, JobView, Product, Reply, Route, Submitted, accept, lifecycle, own_job, reply

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
    return await accept(call, "greeting", {"name": call.params["whom"]}, shape=to_wire, location="/{id}")


async def look(call: Call) -> Reply:
    job = await own_job(call)
    return reply({**to_wire(job), "words": json.loads(job.output)["text"] if job.output else None})


def to_wire(job: Submitted | JobView) -> dict:
    return {"greeting": job.id, "status": job.state, "coins": job.price}


routes = (
    Route(method="POST", path="/to/{whom}", handle=greet, summary="Greet somebody.", answers={202: dict}),
    Route(method="GET", path="/{id}", handle=look, summary="Read a greeting.", answers={200: dict}),
)
product = Product(lifecycle=GREETINGS, kinds=tuple(app.kinds.values()), title="Greetings", routes=routes)
