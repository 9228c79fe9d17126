// Start a training and go to its page as soon as there is one.
import { get, postTrusted } from "./api.js";
import { followJobs } from "./jobs.js";
import { attempt, toast } from "./parts.js";
import { go } from "./router.js";

const POLL_MS = 300;
const LONGEST_MS = 60_000;

/** `body`: what `POST api/start` takes. The answer, or undefined if it could not be started. */
export async function startAndOpen(body) {
  const got = await attempt(() => postTrusted("start", body));
  if (!got) return undefined;
  followJobs();
  if (got.experiment) go(`experiments/${encodeURIComponent(got.experiment)}`);
  else if (got.sweep) go(`sweeps/${encodeURIComponent(got.sweep)}`);
  else if (await appears(got.job.id)) go(`runs/${encodeURIComponent(got.run)}`);
  else go("start", { job: got.job.id });
  return got;
}

/** Wait until a job has made its run; false if it ended before, or takes too long. */
async function appears(job) {
  const until = Date.now() + LONGEST_MS;
  while (Date.now() < until) {
    try {
      const now = (await get(`jobs/${encodeURIComponent(job)}`)).job;
      if (now.run) return true;
      if (!now.is_running) { toast("It ended before the training began; its console says why.", "bad"); return false; }
    } catch { /* the server may be busy */ }
    await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
  }
  return false;
}
