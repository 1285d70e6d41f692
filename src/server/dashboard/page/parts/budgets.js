/** Balances of budgets, with a forecast. */
import { h } from "./dom.js";
import { rate } from "./format.js";
import { bar, keyOf, link, panel, table } from "./parts.js";

const day = (text) =>
  new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

const forecast = ({ remaining, spentAt }) =>
  remaining === 0 ? "spent" : spentAt === undefined ? "it lasts" : day(spentAt);

/** The name of the key or member that a budget belongs to. */
function ownerOf({ key, keys, member }) {
  if (member !== undefined) return `member ${member}`;
  if (key === undefined && keys === undefined) return "all keys";
  return keys === undefined ? keyOf({ key }) : JSON.stringify(keys);
}

/** A link to the page of a key or member. A URL cannot name several keys. */
function linkToOwner(bucket, each) {
  const { key, keys, member } = each;
  if (keys !== undefined || (key === undefined && member === undefined)) return ownerOf(each);
  if (member !== undefined) return link(ownerOf(each), "member", bucket, member);
  return keyLink(bucket, key);
}

/** A link to the page of a key. */
export const keyLink = (bucket, key) => link(keyOf({ key }), "key", bucket, ...[key].flat());

/** The balances of a bucket's budgets. With `owners`, also the keys that they belong to. */
export function budgetsPanel(title, budgets, { bucket, owners = false, empty = "", more } = {}) {
  const rows = budgets.map((each) => [
    ...(owners ? [linkToOwner(bucket, each)] : []),
    h("code", {}, each.name),
    h("div.rate", {}, bar(each.spent / each.amount)),
    rate(each.spent),
    rate(each.amount),
    rate(each.reserved),
    day(each.resetsAt),
    forecast(each),
  ]);
  const heads = [
    ...(owners ? ["Key"] : []),
    "Budget",
    "Share",
    "#Spent",
    "#Amount",
    "#Reserved",
    "Next period",
    "Spent on, at this pace",
  ];
  return panel(title, [table(title, heads, rows, empty), more]);
}

export async function grantEffect({ amounts }, { isValid }) {
  return isValid ? `The budgets of this unit get ${amounts} more until their periods end.` : "";
}
