"""The jobs of the shop: prints of a picture, for one credit per copy."""

from millpond import Job, Millpond

app = Millpond()


@app.kind("print", price=lambda order: order.copies)
async def print_picture(job: Job, picture: str, copies: int = 1) -> dict[str, list[str]]:
    """Print a picture."""
    pages = []
    for number in range(1, copies + 1):
        pages.append(f"{picture} {number}/{copies}")
        await job.progress(number / copies)
    return {"pages": pages}
