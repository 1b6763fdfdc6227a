"""What the shop sells: prints of a picture, one credit a copy."""

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
