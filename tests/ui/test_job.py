"""The page of one job, in a real browser: it is watched as it goes, and every act on it is done for real."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.acceptance.processes import until
from tests.browsers import fits, photograph
from tests.children import spawned
from tests.ui.dashboards import serious, shows_traceback

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

    from tests.ui.dashboards import Caller, Dash

EVIL = """<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'"$(touch hacked)`&amp;"""


async def state_is(page: Page, state: str) -> None:
    await expect(page.locator(".page-head .badge").first).to_have_text(state)


async def confirm(page: Page, action: str) -> None:
    await page.locator("dialog").get_by_role("button", name=action, exact=True).click()
    await expect(page.locator("dialog")).to_have_count(0)


async def available(client: Caller) -> int:
    return (await client.get("wallet"))["available"]


async def test_a_job_is_seen_moving_from_queued_to_completed_without_reload(dash: Dash) -> None:
    client = await dash.client()
    go = dash.file()
    async with dash.paused("paint"):
        job_id = await client.submit("paint", {"wait_for": str(go)})
        async with dash.page(f"/jobs/{job_id}") as page:
            await state_is(page, "queued")
            await expect(page.get_by_text("4 credits held", exact=True)).to_be_visible()
            await page.evaluate("window.isSame = true")
            await photograph(page, "ui/job-1-queued")

            await dash.admin.act("POST", "queues/paint/resume")
            await state_is(page, "running")
            await expect(page.get_by_role("log")).to_contain_text("loading a model for a lighthouse")
            await expect(page.locator(".job-line")).to_contain_text("load")
            await expect(page.get_by_role("img", name="attempt 1").last).to_be_visible()
            await photograph(page, "ui/job-2-running")

            await page.route("**/api/v1/board/jobs/*", lambda route: route.abort())  # its events alone move the bar
            go.touch()
            bar = page.locator(".job-line progress")
            await expect(bar).not_to_have_js_property("value", 0)
            await page.unroute("**/api/v1/board/jobs/*")
            await state_is(page, "succeeded")
            picture = page.locator(".media img")
            await expect(picture).to_be_visible()
            assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 96
            await expect(page.get_by_text("The job succeeded, and the 4 credits held were captured.")).to_be_visible()
            await expect(page.get_by_label("Timeline of").locator(".job-span")).not_to_have_count(0)
            assert await page.evaluate("window.isSame") is True
            await photograph(page, "ui/job-3-succeeded")


async def test_text_is_shown_as_it_is_emitted(dash: Dash) -> None:
    client = await dash.client()
    folder = dash.file()
    folder.mkdir()

    def emit(number: int, text: str) -> None:
        (folder / "part").write_text(text, "utf-8")
        (folder / "part").rename(folder / str(number))

    emit(1, "Once upon\n")
    job_id = await client.submit("narrate", {"folder": str(folder)})
    async with dash.page(f"/jobs/{job_id}") as page:
        box = page.get_by_role("log", name="Text")
        await expect(box).to_have_text("Once upon\n", use_inner_text=False)  # what came before the page was opened
        height = await box.evaluate("box => box.clientHeight")
        await page.evaluate("window.node = document.querySelector('.live-text').firstChild")
        emit(2, EVIL)
        await expect(box).to_contain_text(EVIL)
        assert await page.evaluate("window.hacked") is None
        emit(3, "".join(f"line {number}\n" for number in range(200)))
        await expect(box).to_contain_text("line 199")
        assert await box.evaluate("box => box.clientHeight") == height  # nothing moves
        assert await box.evaluate("box => box.scrollTop + box.clientHeight >= box.scrollHeight - 24")
        assert await page.evaluate("window.node === document.querySelector('.live-text').firstChild")
        assert await serious(page) == []
        await photograph(page, "ui/job-text")

        # The reader goes back, and stays there.
        await box.evaluate(
            "box => new Promise(done => { box.addEventListener('scroll', done, {once: true}); box.scrollTop = 0 })"
        )
        emit(4, "one more")
        await expect(box).to_contain_text("one more")
        assert await box.evaluate("box => box.scrollTop") == 0

        emit(5, "fail")
        await expect(page.locator(".job-side")).to_contain_text("1 failed")
        emit(6, "There was")
        await expect(box).to_have_text("There was")  # the second attempt restarts it
        emit(7, "")
        await state_is(page, "succeeded")
        await expect(page.get_by_role("tab", name="Output")).to_have_attribute("aria-selected", "true")
        await page.get_by_role("tab", name="Text").click()
        await expect(box).to_have_text("There was")


async def test_a_page_that_is_opened_later_has_the_output_only(dash: Dash) -> None:
    folder = dash.file()
    folder.mkdir()
    (folder / "1").write_text("", "utf-8")
    job = await (await dash.client()).done("narrate", {"folder": str(folder)})
    async with dash.page(f"/jobs/{job['id']}?tab=text") as page:
        await expect(page.get_by_text("The output is its result.")).to_be_visible()


async def test_a_picture_is_fetched_once_however_often_the_job_is_looked_at(dash: Dash) -> None:
    """Each look signs its files again. A new address would draw the picture again, and begin a film again."""
    job = await (await dash.client()).done("paint")
    async with dash.page(f"/jobs/{job['id']}") as page:
        picture = page.locator(".media img")
        await expect(picture).to_be_visible()
        first = await picture.get_attribute("src")
        signed = first
        while signed == first:
            async with page.expect_response("**/board/jobs/*") as looked:
                pass
            (file,) = (await (await looked.value).json())["files"]
            signed = file["download"]["url"]
        async with page.expect_response("**/board/jobs/*"):  # the page has drawn what came before it
            pass
        assert await picture.get_attribute("src") == first


async def test_a_failed_job_reports_why_first_and_is_retried(dash: Dash) -> None:
    client = await dash.client()
    job = await client.done("broken", {"number": 41})
    async with dash.page(f"/jobs/{job['id']}") as page:
        element = page.get_by_role("region", name="Error")
        await expect(element.get_by_role("heading")).to_have_text(
            "ValueError: there are 41 bytes left, and 42 are needed"
        )
        await expect(element).to_contain_text("Failed after 2 attempts")
        await expect(element).to_contain_text("The 3 credits held were released.")
        await element.get_by_role("link", name="Log").click()
        await expect(page.get_by_role("log")).to_contain_text("about to fail with 41")
        await page.get_by_label("Level").select_option("error")
        await expect(page.get_by_role("log").get_by_role("listitem")).to_have_count(2)
        await page.get_by_role("tab", name="Attempts").click()
        await expect(page.get_by_role("table", name="Attempts").locator("tbody tr")).to_have_count(2)
        assert "tab=attempts" in page.url
        await photograph(page, "ui/job-failed")
        assert await serious(page) == []

        await page.locator("main").press("r")
        await expect(page.locator("dialog")).to_contain_text("3 credits are held again in the wallet of main")
        await photograph(page, "ui/job-retry")
        await confirm(page, "Retry")
        await expect(page).not_to_have_url(f"*{job['id']}*")
        await state_is(page, "failed")
        made = (await client.get("jobs", kind="broken"))["data"][0]
        assert (made["retry_of"], made["input"]) == (job["id"], {"number": 41})
        await expect(page.locator(".job-side")).to_contain_text("Retry of")


async def test_a_failed_job_shows_the_tracebacks_of_its_attempts(dash: Dash) -> None:
    job = await (await dash.client()).done("broken", {"number": 41})
    async with dash.page(f"/jobs/{job['id']}", "viewer") as page:
        await shows_traceback(page.get_by_role("region", name="Error"))
        await page.get_by_role("tab", name="Attempts").click()
        attempts = page.get_by_role("table", name="Attempts").locator("tbody tr")
        await expect(attempts).to_have_count(2)
        for attempt in await attempts.all():
            await shows_traceback(attempt)


async def test_a_job_that_is_retried_in_place_is_followed_on(dash: Dash) -> None:
    client = await dash.client()
    go = dash.file()
    job = await client.done("stubborn", {"wait_for": str(go)})
    async with dash.page(f"/jobs/{job['id']}") as page:
        await expect(page.get_by_role("heading", name="There is no file yet.")).to_be_visible()
        go.touch()
        await page.get_by_role("button", name="Retry this job…").click()
        await expect(page.locator("dialog")).to_contain_text("The job runs again")
        await confirm(page, "Retry")
        await state_is(page, "done")
        await expect(page.get_by_role("region", name="Error")).to_have_count(0)
        await expect(page.locator(".job-side")).to_contain_text("run 2")
        await expect(page.get_by_role("button", name="Retry…")).to_be_disabled()
    assert (await client.job(job["id"]))["run"] == 2


async def test_a_running_job_is_canceled_by_a_key(dash: Dash) -> None:
    client = await dash.client()
    job_id = await client.submit("slow", {"lines": 60})
    before = await available(client)
    await client.until(job_id, "running")
    async with dash.page(f"/jobs/{job_id}", dark=True) as page:
        await expect(page.locator(".job-line")).to_contain_text("working")
        log = page.get_by_role("log")
        await expect(log.get_by_text("line 59")).to_be_in_viewport()
        await expect(log.get_by_text("line 0", exact=True)).not_to_be_in_viewport()
        await page.locator("main").press("r")
        await expect(page.locator(".toast")).to_contain_text("The job has not ended yet.")
        await page.locator("main").press("c")
        await expect(page.locator("dialog")).to_contain_text("The worker is asked to stop")
        await photograph(page, "ui/job-cancel-dark")
        assert await serious(page) == []
        await confirm(page, "Cancel job")
        await state_is(page, "canceled")
        await expect(
            page.get_by_text("The job did not succeed and cost nothing; 2 credits were released.")
        ).to_be_visible()
        await photograph(page, "ui/job-canceled-dark")
    assert (await client.job(job_id))["outcome"] == "canceled"
    assert await available(client) == before + 2


async def test_a_dialog_names_its_job_and_does_not_go_along_to_another_page(dash: Dash) -> None:
    client = await dash.client()
    jobs = [await client.submit("parked") for _ in range(2)]
    for job in jobs:
        await client.until(job, "parked")
    go = asyncio.Event()

    async def slowly(route: Route) -> None:
        await go.wait()
        await route.continue_()

    async with dash.page(f"/jobs?tenant={client.tenant}") as page:
        dialog = page.get_by_role("dialog")
        for job in jobs:
            await page.locator(f'tr[data-key="{job}"]').get_by_role("link").first.click()
            await page.get_by_role("button", name="Cancel…").click()
            await expect(dialog.get_by_role("heading")).to_have_text(re.compile(rf"Cancel parked .*{job[-5:]}$"))
            if job == jobs[0]:
                await page.go_back()
                await expect(dialog).to_have_count(0)
        # What is being done is not left by mistake; and when it ends it closes no other question.
        await page.route("**/cancel*", slowly)
        await dialog.get_by_role("button", name="Cancel job").click()
        await expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
        for _ in range(3):
            await page.keyboard.press("Escape")
        await expect(dialog).to_be_visible()
        await page.go_back()
        await expect(dialog).to_have_count(0)
        await page.locator(f'tr[data-key="{jobs[0]}"]').get_by_role("link").first.click()
        await page.get_by_role("button", name="Answer…").click()
        go.set()
        await expect(page.locator(".toast")).to_contain_text("Cancellation requested.")
        await expect(dialog.get_by_role("heading")).to_contain_text("Answer parked")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
    assert [(await client.job(job))["outcome"] for job in jobs] == [None, "canceled"]
    await client.act("POST", f"jobs/{jobs[0]}/cancel")


async def test_a_job_is_refunded_in_part_and_then_whole(dash: Dash) -> None:
    client = await dash.client()
    job = await client.done("paint")
    before = await available(client)
    async with dash.page(f"/jobs/{job['id']}") as page:
        for amount, left in ((3, 1), (1, 0)):
            await page.get_by_role("button", name="Refund…").click()
            await page.locator("dialog").get_by_label("Credits").fill(str(amount))
            await page.get_by_label("Reason").fill(f"the sky is flat, {amount}")
            await confirm(page, "Refund")
            entries = page.get_by_role("table", name="Ledger entries")
            await expect(entries).to_contain_text(f"the sky is flat, {amount}")
            assert await available(client) == before + 4 - left
        await expect(page.get_by_role("button", name="Refund…")).to_be_disabled()
        await expect(page.locator(".job-sum")).to_contain_text(
            "4 credits were refunded later; the net cost is 0 credits."
        )
        await expect(entries.get_by_role("link", name="refund").first).to_have_attribute(
            "href", re.compile(rf"/ui/credits/{client.tenant}/main\?cursor=\d+$")
        )
        await photograph(page, "ui/job-refunded")


async def test_markup_in_a_job_is_shown_as_text_and_never_run(dash: Dash) -> None:
    client = await dash.client()
    given = {"html": EVIL, EVIL: [EVIL]}
    jobs = [await client.done("echo", given), await client.done("refused", {"reason": EVIL})]
    async with dash.page(f"/jobs/{jobs[0]['id']}?tab=input") as page:
        for tab in ("Input", "Output"):
            await page.get_by_role("tab", name=tab).click()
            await expect(page.locator(".json pre")).to_contain_text("<script>window.hacked=1</script>")
            assert await page.locator(".json pre img, .json pre script").count() == 0
        await page.get_by_role("tab", name="Events").click()
        await expect(page.get_by_role("table", name="Events")).to_contain_text("succeeded")
        await page.goto(f"{dash.ui}/jobs/{jobs[1]['id']}")
        await expect(page.get_by_role("region", name="Error")).to_contain_text(EVIL)
        await photograph(page, "ui/job-markup")
        await page.goto(f"{dash.ui}/jobs?tenant={client.tenant}")
        await expect(page.get_by_role("table", name="Jobs")).to_contain_text("<script>window.hacked=1</script>")
        assert await page.evaluate("window.hacked") is None


async def test_what_is_copied_really_runs(dash: Dash) -> None:
    client = await dash.client()
    given = {"html": EVIL, "list": [1, 2.5, True, None, {"deep": "é\u2028\n\\"}]}
    job = await client.done("echo", given, priority=7)
    async with dash.page(f"/jobs/{job['id']}") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=dash.url)
        copied: list[str] = []
        for name in ("Copy as curl", "Copy as Python"):
            await page.get_by_role("button", name=name).click()
            await expect(page.locator(".toast").last).to_contain_text("Copied")
            copied.append(await page.evaluate("navigator.clipboard.readText()"))
    curl, python = copied
    assert client.key not in curl + python
    bourne, snake = ("sh", "-c", curl), (sys.executable, "-c", python)
    for key, words in ((client.key, bourne), (dash.admin_key, bourne), (client.key, snake)):
        await _run(dash, key, *words)
        made = (await client.get("jobs", kind="echo"))["data"][0]
        assert made["id"] > job["id"]
        assert (made["input"], made["priority"], made["account"]) == (given, 7, "main")
        job = made
    assert not (dash.folder / "hacked").exists()


async def _run(dash: Dash, key: str, *words: str) -> None:
    environment = os.environ | {"MILLPOND_API_KEY": key}
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    async with spawned(*words, env=environment, cwd=dash.folder, **pipes) as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"job_" in out, out.decode()


async def test_a_parked_job_is_answered_and_a_waiting_one_goes_first(dash: Dash) -> None:
    client = await dash.client()
    parked = await client.submit("parked")
    await client.until(parked, "parked")
    async with dash.page(f"/jobs/{parked}", "operator") as page:
        await page.get_by_role("button", name="Answer…").click()
        await page.get_by_label("Answer", exact=True).fill("{not json")
        await page.locator("dialog").get_by_role("button", name="Answer").click()
        await expect(page.locator("dialog [role=alert]")).to_contain_text("JSON")
        await page.get_by_label("Answer", exact=True).fill('{"may": "go"}')
        await confirm(page, "Answer")
        await state_is(page, "succeeded")
        assert (await client.job(parked))["output"] == {"may": "go"}

        later = await client.submit("echo", run_at="2030-01-01T00:00:00Z")
        await page.goto(f"{dash.ui}/jobs/{later}")
        await page.get_by_role("button", name="Priority…").click()
        await page.get_by_label("Priority", exact=True).fill("42")
        await confirm(page, "Change")
        await expect(page.locator(".job-side")).to_contain_text("42")
        assert (await client.job(later))["priority"] == 42
        await client.act("POST", f"jobs/{later}/cancel")
        await state_is(page, "canceled")


async def test_a_delivery_of_a_job_is_sent_again(dash: Dash) -> None:
    client = await dash.client()
    name = client.tenant or ""
    job = await client.done("echo", webhook={"url": dash.there.url("healthy", name)})
    await until(lambda: _has_come(dash, name, 1))
    async with dash.page(f"/jobs/{job['id']}?tab=deliveries") as page:
        await expect(page.get_by_role("table", name="Deliveries")).to_contain_text("delivered")
        await page.get_by_role("button", name="Resend job.succeeded").click()
        await expect(page.locator(".toast")).to_contain_text("Delivery resent.")
        await until(lambda: _has_come(dash, name, 2))
        await photograph(page, "ui/job-deliveries")
    first, again = dash.there.of(name)
    assert first.id == again.id


async def _has_come(dash: Dash, name: str, count: int) -> bool:
    return len(dash.there.of(name)) == count


async def test_a_viewer_sees_what_exists_and_can_do_none_of_it(dash: Dash) -> None:
    client = await dash.client()
    job = await client.done("paint")
    async with dash.page(f"/jobs/{job['id']}", "viewer", tenant=client.tenant, narrow=True) as page:
        for name in ("Retry…", "Cancel…", "Refund…"):
            await expect(page.get_by_role("button", name=name)).to_be_disabled()
        await expect(page.get_by_role("button", name="Retry…")).to_have_attribute(
            "title", "This requires a key of scope operator."
        )
        await page.get_by_role("tab", name="Files").click()
        await expect(page.locator(".media img")).to_be_visible()
        assert await fits(page)
        await photograph(page, "ui/job-narrow")

        other = await (await dash.client()).done("echo")
        await page.goto(f"{dash.ui}/jobs/{other['id']}")
        await expect(page.get_by_role("alert")).to_contain_text("There is no job")
        await photograph(page, "ui/job-missing-narrow")
