/** A replica with a rules file that draws all the time, and ends when it is killed. It tells the policy in force. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", rules = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, rules });
const bucket = sluice.bucket("api");
let told = "";

for (;;) {
  await bucket.draw();
  const { policy, source, rulesVersion } = await bucket.status();
  const text = `${policy} (${source} ${rulesVersion})`;
  if (text !== told) console.log(text);
  told = text;
}
