"""The page of a job with children and questions, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.acceptance.processes import until
from tests.browsers import fits
from tests.ui.actions import confirm, pictures
from tests.ui.dashboards import serious

if TYPE_CHECKING:
    from playwright.async_api import Request

    from tests.ui.dashboards import Caller, Dash


async def waits(client: Caller, job_id: str, reason: str) -> None:
    async def is_there() -> bool:
        return (await client.job(job_id))["waits_for"] == reason

    await until(is_there, 20)


async def half_made(client: Caller, scenes: int) -> str:
    """A film all of whose scenes have ended but the first, which waits for two frames."""
    film = await client.submit("film", {"scenes": scenes, "frames": 2})

    async def has_scenes() -> bool:
        return (await client.get(f"jobs/{film}/children"))["counts"]["ended"] == scenes - 1

    await until(has_scenes, 60)
    return film


async def test_the_children_of_a_job_are_counted_and_read_page_by_page(dash: Dash) -> None:
    client = await dash.client(credits=2_000)
    async with dash.paused("frame"):
        film = await half_made(client, 120)
        async with dash.page("/") as page:
            asked: list[str] = []

            def note(request: Request) -> None:
                if "/children" in request.url:
                    asked.append(request.url)

            page.on("request", note)
            await page.goto(f"{dash.ui}/jobs/{film}")
            panel = page.get_by_role("region", name="Children")
            await expect(panel).to_contain_text("119 of 120 children have ended")
            await expect(panel).to_contain_text("Budget of 500 credits")
            for share in ("119 succeeded", "1 not ended", "238 spent", "4 reserved", "258 left"):
                await expect(panel.get_by_role("listitem").filter(has_text=share)).to_be_visible()
            for fact in ("waits for children", "267 credits held"):
                await expect(page.locator(".job-line")).to_contain_text(fact)
            rows = panel.locator(".job-tree-row")
            await expect(rows).to_have_count(50)
            assert {url.partition("?")[0].split("/")[-2] for url in asked} == {film}, "no child's children are read yet"
            assert all("limit=50" in url for url in asked)
            for count in (100, 120):
                await panel.get_by_role("button", name="Show 50 more").click()
                await expect(rows).to_have_count(count)
            await expect(panel.get_by_role("button", name="Show 50 more")).to_have_count(0)
            await dash.admin.act("POST", "queues/frame/resume")
            await expect(panel).to_contain_text("120 of 120 children have ended")
            await expect(page.get_by_role("region", name="Questions")).to_be_visible()
    await client.act("POST", f"jobs/{film}/cancel")


async def test_a_tree_is_opened_and_walked_by_keyboard(dash: Dash) -> None:
    client = await dash.client(credits=1_000)
    async with dash.paused("frame"):
        film = await half_made(client, 3)
        async with dash.page(f"/jobs/{film}") as page:
            panel = page.get_by_role("region", name="Children")
            toggle = panel.get_by_role("button", name="Children of scene")
            await expect(toggle).to_have_count(1)
            await toggle.focus()
            await page.keyboard.press("Enter")
            await expect(toggle).to_have_attribute("aria-expanded", "true")
            frames = panel.get_by_role("list", name="Children of scene").locator(".job-tree-row")
            await expect(frames).to_have_count(2)
            await expect(frames.first).to_contain_text("up to 1")
            assert await serious(page) == []
            await pictures(page, "job-tree")
            await page.keyboard.press("ArrowLeft")
            await expect(frames).to_have_count(0)

            line = page.locator(".job-line")
            await panel.locator(".job-tree-row").first.get_by_role("link").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("scene")
            await expect(line).to_contain_text("waits for children")
            await expect(page.locator(".job-sum")).to_have_text(
                "2 credits are reserved in the budget of a job above until the job ends."
            )
            assert await fits(page)
            await expect(line).to_contain_text("child of")
            await line.get_by_role("link").last.click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("film")
            await page.get_by_role("button", name="Cancel…").click()
            await expect(page.get_by_role("dialog")).to_contain_text(
                "The 501 credits held for it are released to the wallet of main. Its children are canceled with it"
            )
            await confirm(page, "Cancel job")
            await expect(panel.get_by_role("listitem").filter(has_text="1 canceled")).to_be_visible()
            await expect(page.locator(".job-sum")).to_contain_text("its children 4 credits, 4 credits in all")


async def test_questions_are_answered_on_the_page_of_the_job(dash: Dash) -> None:
    client = await dash.client(credits=1_000)
    film = await client.submit("film")
    await waits(client, film, "question")
    async with dash.page(f"/jobs/{film}", "operator") as page:
        await expect(page.locator(".job-line")).to_contain_text("waits for an answer")
        await expect(page.get_by_role("button", name="Answer…")).to_have_count(0)
        panel = page.get_by_role("region", name="Questions")
        form = panel.get_by_role("form", name="Which scene is best?")
        await expect(panel).to_contain_text("to be answered by operators, deadline in 48 h")
        await form.get_by_label("style").select_option("slow")
        await form.get_by_role("button", name="Send answer").click()
        await expect(panel.locator(".trouble")).to_contain_text("required property")
        await form.get_by_label("scene").fill("-1")
        await form.get_by_role("button", name="Send answer").click()
        await expect(form.locator("[data-path='answer.scene'] [role=alert]")).to_contain_text("minimum")
        assert await serious(page) == []
        await pictures(page, "job-question")
        await form.get_by_label("scene").fill("1")
        await form.get_by_role("button", name="Send answer").click()
        await expect(page.locator(".toast").last).to_contain_text("Answer sent.")

        text = panel.get_by_role("form", name="What is it called?")
        await expect(text).to_be_visible()
        await expect(text.get_by_role("button", name="Send answer")).to_be_disabled()
        await expect(panel).to_contain_text("scene: 1")
        await text.get_by_label("Answer").fill("The <b>sea</b>")
        await text.get_by_role("button", name="Send answer").click()
        await expect(panel.get_by_role("form")).to_have_count(0)
        await expect(panel).to_contain_text('"The <b>sea</b>"')
        await expect(page.locator(".job-line")).to_contain_text("waits until")
        await expect(page.locator(".job-line")).to_contain_text("(in 60 min)")
    shown = (await client.get(f"jobs/{film}/questions"))["data"]
    assert [(question["name"], question["answer"]) for question in shown] == [("title", "The <b>sea</b>")]
    await client.act("POST", f"jobs/{film}/cancel")


async def test_who_may_not_answer_is_shown_why(dash: Dash) -> None:
    client = await dash.client(credits=1_000)
    made = {"scope": "client", "tenant": client.tenant, "account": "main"}
    key = (await dash.admin.act("POST", "keys", made))["id"]
    film = await client.submit("film", {"who": key})
    await waits(client, film, "question")
    async with dash.page(f"/jobs/{film}", "viewer") as page:
        panel = page.get_by_role("region", name="Questions")
        await expect(panel).to_contain_text("This requires a key of scope operator.")
        await expect(panel.get_by_role("form")).to_have_count(0)
        answer = {"question": "cut", "answer": {"scene": 0}}
        await dash.admin.act("POST", f"jobs/{film}/answer", answer)
        await expect(panel).to_contain_text(f"Only the key {key} may answer this.")
        await client.act("POST", f"jobs/{film}/cancel")
        await expect(panel).to_contain_text("The job ended before it was answered.")
