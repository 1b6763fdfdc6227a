// Checks webhooks with the libraries of Node.js, and signs one with each: JSON in, JSON out.
const { readFileSync } = require("node:fs");

const libraries = { svix: require("svix").Webhook, standardwebhooks: require("standardwebhooks").Webhook };
const { secret, id, timestamp, body, cases } = JSON.parse(readFileSync(0, "utf8"));

const reported = { verified: {}, signed: {} };
for (const [name, Webhook] of Object.entries(libraries)) {
  reported.verified[name] = cases.map(({ secret, headers, body }) => {
    try {
      return { ok: true, said: new Webhook(secret).verify(body, headers) };
    } catch (error) {
      return { ok: false, said: String(error.message) };
    }
  });
  reported.signed[name] = new Webhook(secret).sign(id, new Date(timestamp * 1000), body);
}
process.stdout.write(JSON.stringify(reported));
