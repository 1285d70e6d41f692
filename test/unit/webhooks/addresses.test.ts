import { describe, expect, it } from "vitest";
import { ALLOW, createJudge } from "../../../src/webhooks/guard/addresses.ts";

describe("the addresses that webhooks may go to", () => {
  it.each([
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "168.63.129.17",
    "2606:4700:4700::1111",
    "2a00:1450:4001:830::200e",
    // What NAT64 answers for a public host, and a mapped public host.
    "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8",
  ])("include the public address %s", (address) => {
    expect(createJudge()(address)).toBe(true);
  });

  it.each([
    ["this host", "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "::", "::1"],
    ["private networks", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
    ["carriers' networks", "100.64.0.1", "100.100.100.200", "100.127.255.255"],
    ["metadata of clouds", "169.254.169.254", "168.63.129.16", "fd00:ec2::254"],
    ["protocols and examples", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1"],
    ["relays and examples", "203.0.113.7", "192.88.99.1", "2001:db8::1", "3fff::1"],
    ["what is answered nearby", "192.31.196.1", "192.52.193.1", "192.175.48.1", "2620:4f:8000::1"],
    ["multicast and the reserved end", "224.0.0.1", "240.0.0.1", "255.255.255.255", "ff02::1"],
    [
      "mapped addresses",
      "::ffff:127.0.0.1",
      "::ffff:7f00:1",
      "::ffff:10.0.0.1",
      "::ffff:a9fe:a9fe",
    ],
    ["compatible and translated ones", "::127.0.0.1", "::ffff:0:127.0.0.1", "::8.8.8.8"],
    ["NAT64", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::10.0.0.1"],
    ["tunnels", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001::1"],
    ["ISATAP", "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1"],
    ["local IPv6", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "5f00::1", "100::1"],
    ["what is no address", "localhost", "", "127.1", "0x7f000001", "017700000001", "fe80::1%eth0"],
  ])("leave out %s", (_what, ...addresses) => {
    const judge = createJudge();

    expect(addresses.filter(judge)).toEqual([]);
  });

  it("include private ones that are allowed, and no others", () => {
    const judge = createJudge(["10.1.0.0/16", "127.0.0.1", "fd00::/8"]);

    expect(["10.1.2.3", "127.0.0.1", "fd12::1", "::ffff:10.1.2.3"].filter(judge)).toHaveLength(4);
    expect(["10.2.0.1", "127.0.0.2", "fc00::1", "169.254.169.254"].filter(judge)).toEqual([]);
  });

  it.each([
    "10.0.0.0/33",
    "10.1.2.3/8",
    "10.0.0.0/-1",
    "10.0.0.0/8/8",
    "localhost",
    "10.0/8",
    "fe80::1%eth0",
    "",
  ])("are not widened by %s, which is no range", (range) => {
    expect(ALLOW.safeParse([range]).success).toBe(false);
  });
});
