/** Texts of many kinds, written or generated for the estimates of tokens. */
import { createHash } from "node:crypto";

/** The same bytes at each run. */
function bytes(count: number, seed: string): Buffer {
  const pieces = Array.from({ length: Math.ceil(count / 32) }, (_, index) =>
    createHash("sha256").update(`${seed} ${index}`).digest(),
  );
  return Buffer.concat(pieces).subarray(0, count);
}

const ROWS = Array.from({ length: 40 }, (_, index) => ({
  id: 1_000 + index * 37,
  customer: { name: ["Ada Brand", "Jo Meyer", "Li Chen"][index % 3], active: index % 2 === 0 },
  total: Number((index * 19.99).toFixed(2)),
  createdAt: `2026-11-${String((index % 28) + 1).padStart(2, "0")}T0${index % 10}:15:00.000Z`,
  tags: ["paid", "express"].slice(0, index % 3),
  note: index % 4 === 0 ? null : "call before delivery",
}));

const uuid = (index: number): string =>
  bytes(16, `uuid ${index}`)
    .toString("hex")
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");

/** By what they are. */
export const CORPUS: Readonly<Record<string, string>> = {
  "English prose": `The lock keeper opens the upper gate when the water on both sides has come to one level. Small boats enter first and lie along the wall; the barge follows, slowly, with a few centimetres to spare on either side. Nobody hurries here. A crew that arrives late in the evening moors below the bridge and waits for the next morning, because the pumps are switched off at nine. In dry summers the canal company asks skippers to share each filling of the chamber, since every passage carries a hundred and fifty thousand litres downhill. Most of them grumble, tie up side by side, and end up exchanging weather reports, recipes and spare parts.`,
  "a conversation in English": `Hi! I ordered a blue kettle last week (order no. 48213) and it still hasn't arrived. Could you check what's going on?\n\nSure, I'm happy to help. I can see that your parcel left our warehouse on Monday, but the carrier couldn't find your door. Did you get a card from them?\n\nNo, I didn't. I've been home all day, so that's odd... Can't you just send it again?\n\nOf course. I've asked them to try once more tomorrow between 9 and 12. If that doesn't work, you'll get your money back - no questions asked. Is there anything else?\n\nThat's all, thanks a lot!`,
  German: `Die Schleuse überwindet einen Höhenunterschied von sieben Metern, und der Schleusenwärter kennt jedes Schiff beim Namen. Größere Lastkähne müssen sich rechtzeitig anmelden, damit die Kammer nicht halb leer gefüllt wird. Im Sommer, wenn das Wasser knapp ist, fahren mehrere Freizeitboote gemeinsam hinein. Wer nach einundzwanzig Uhr ankommt, übernachtet am Anleger unterhalb der Eisenbahnbrücke und wartet bis zum nächsten Morgen. Die meisten nehmen es gelassen, tauschen Wetterberichte und Ersatzteile aus und kochen zusammen Suppe.`,
  French: `L'éclusier ouvre la porte amont lorsque l'eau a atteint le même niveau des deux côtés. Les petits bateaux entrent d'abord et se rangent le long du mur ; la péniche suit lentement, avec quelques centimètres de marge. Personne n'est pressé ici. Ceux qui arrivent tard le soir s'amarrent sous le pont et attendent le lendemain matin, car les pompes s'arrêtent à neuf heures. Pendant les étés secs, la compagnie demande aux mariniers de partager chaque éclusée, puisque chaque passage fait descendre cent cinquante mille litres d'eau.`,
  Spanish: `El esclusero abre la compuerta superior cuando el agua ha alcanzado el mismo nivel en ambos lados. Primero entran los barcos pequeños y se colocan junto al muro; después llega la barcaza, despacio, con pocos centímetros de margen. Aquí nadie tiene prisa. Quien llega tarde por la noche amarra debajo del puente y espera hasta la mañana siguiente, porque las bombas se apagan a las nueve. En los veranos secos la compañía pide a los patrones que compartan cada llenado de la cámara.`,
  Polish: `Śluzowy otwiera górne wrota, gdy woda po obu stronach osiągnie ten sam poziom. Najpierw wpływają małe łodzie i ustawiają się wzdłuż ściany, a za nimi powoli barka, której z każdej strony zostaje kilka centymetrów. Nikt się tutaj nie spieszy. Kto przypłynie późnym wieczorem, cumuje poniżej mostu i czeka do następnego ranka, ponieważ pompy są wyłączane o dziewiątej. W suche lata spółka prosi szyprów, żeby dzielili się każdym napełnieniem komory.`,
  Turkish: `Kapak bekçisi, iki taraftaki su aynı seviyeye gelince üst kapağı açar. Önce küçük tekneler girer ve duvar boyunca dizilir; ardından mavna, her iki yanda birkaç santimetre boşlukla yavaşça ilerler. Burada kimse acele etmez. Akşam geç gelenler köprünün altına bağlanır ve ertesi sabahı bekler, çünkü pompalar saat dokuzda kapatılır. Kurak yazlarda şirket, kaptanlardan her dolumu paylaşmalarını ister.`,
  Vietnamese: `Người giữ âu thuyền mở cửa trên khi mực nước hai bên đã bằng nhau. Những chiếc thuyền nhỏ vào trước và nằm dọc theo bức tường; chiếc sà lan theo sau, chậm rãi, mỗi bên chỉ còn vài xăng-ti-mét. Ở đây không ai vội vàng. Ai đến muộn vào buổi tối thì neo dưới cầu và đợi đến sáng hôm sau, vì máy bơm tắt lúc chín giờ. Vào mùa hè khô hạn, công ty yêu cầu các thuyền trưởng chia sẻ mỗi lần đầy nước.`,
  Russian: `Смотритель шлюза открывает верхние ворота, когда вода с обеих сторон достигает одного уровня. Сначала входят маленькие лодки и становятся вдоль стены, за ними медленно идёт баржа, и с каждой стороны остаётся несколько сантиметров. Здесь никто не спешит. Кто приходит поздно вечером, швартуется ниже моста и ждёт следующего утра, потому что насосы выключают в девять. В сухое лето компания просит капитанов делить между собой каждое наполнение камеры.`,
  Greek: `Ο φύλακας του υδατοφράκτη ανοίγει την επάνω πύλη όταν το νερό φτάσει στο ίδιο επίπεδο και από τις δύο πλευρές. Πρώτα μπαίνουν οι μικρές βάρκες και στέκονται δίπλα στον τοίχο· ακολουθεί αργά η φορτηγίδα. Εδώ κανείς δεν βιάζεται. Όποιος έρχεται αργά το βράδυ δένει κάτω από τη γέφυρα και περιμένει το επόμενο πρωί.`,
  Arabic: `يفتح حارس الهويس البوابة العليا عندما يصل الماء إلى المستوى نفسه على الجانبين. تدخل القوارب الصغيرة أولا وتصطف على طول الجدار، ثم تتبعها البارجة ببطء ولا يبقى على كل جانب سوى بضعة سنتيمترات. لا أحد يستعجل هنا. من يصل متأخرا في المساء يرسو تحت الجسر وينتظر حتى صباح اليوم التالي، لأن المضخات تتوقف في التاسعة.`,
  Hebrew: `שומר הסכר פותח את השער העליון כאשר המים משני הצדדים הגיעו לאותו גובה. קודם נכנסות הסירות הקטנות ונעמדות לאורך הקיר, ואחריהן לאט לאט הדוברה, ומכל צד נשארים כמה סנטימטרים. אף אחד לא ממהר כאן. מי שמגיע מאוחר בערב עוגן מתחת לגשר ומחכה לבוקר.`,
  Hindi: `जब दोनों ओर का पानी एक ही स्तर पर आ जाता है, तब ताले का रखवाला ऊपरी द्वार खोलता है। पहले छोटी नावें अंदर आती हैं और दीवार के साथ खड़ी हो जाती हैं, फिर बड़ी नाव धीरे धीरे आती है। यहाँ कोई जल्दी में नहीं है। जो शाम को देर से आता है, वह पुल के नीचे रुकता है और अगली सुबह तक प्रतीक्षा करता है, क्योंकि पंप नौ बजे बंद हो जाते हैं।`,
  Thai: `ผู้ดูแลประตูน้ำจะเปิดประตูด้านบนเมื่อระดับน้ำทั้งสองฝั่งเท่ากัน เรือเล็กเข้าไปก่อนและจอดเรียงตามกำแพง แล้วเรือบรรทุกก็ตามเข้าไปช้า ๆ ที่นี่ไม่มีใครรีบร้อน ใครที่มาถึงตอนเย็นจะจอดใต้สะพานและรอจนถึงเช้าวันรุ่งขึ้น เพราะเครื่องสูบน้ำปิดตอนสามทุ่ม`,
  Amharic: `የውሃ በር ጠባቂው በሁለቱም በኩል ያለው ውሃ እኩል ሲሆን የላይኛውን በር ይከፍታል። ትናንሽ ጀልባዎች መጀመሪያ ይገባሉ ከዚያም ትልቁ ጀልባ በቀስታ ይከተላል። እዚህ ማንም አይቸኩልም። ማታ ዘግይቶ የሚመጣ ከድልድዩ በታች ቆሞ እስከ ጠዋት ይጠብቃል።`,
  Georgian: `კარიბჭის მცველი ზედა კარს აღებს, როცა წყალი ორივე მხარეს ერთ დონეზეა. ჯერ პატარა ნავები შედიან და კედელთან დგებიან, მერე კი ნელა შემოდის ბარჟა. აქ არავინ ჩქარობს. ვინც საღამოს გვიან მოდის, ხიდის ქვეშ ჩერდება და დილამდე იცდის.`,
  Tamil: `இரு பக்கமும் நீர் ஒரே அளவில் வரும்போது காவலர் மேல் கதவைத் திறக்கிறார். முதலில் சிறிய படகுகள் உள்ளே நுழைந்து சுவரோரம் நிற்கின்றன; பின்னர் பெரிய படகு மெதுவாக வருகிறது. இங்கே யாரும் அவசரப்படுவதில்லை.`,
  Chinese: `当两侧的水位相同时，船闸管理员打开上游的闸门。小船先进去，沿着墙停好；驳船慢慢跟在后面，两边只剩下几厘米的空隙。这里没有人着急。晚上来得太晚的人把船停在桥下，等到第二天早上，因为水泵九点就关了。在干旱的夏天，公司请船长们一起分享每一次注水。`,
  Japanese: `両側の水位が同じになると、閘門の番人は上の扉を開けます。小さな船が先に入って壁に沿って並び、そのあとに大きな船がゆっくりと続きます。ここでは誰も急ぎません。夜遅くに着いた人は橋の下に船をつないで、次の朝まで待ちます。ポンプは九時に止まるからです。`,
  Korean: `양쪽의 물이 같은 높이가 되면 갑문지기가 위쪽 문을 엽니다. 작은 배들이 먼저 들어가 벽을 따라 서고, 그 뒤로 바지선이 천천히 따라갑니다. 여기서는 아무도 서두르지 않습니다. 저녁 늦게 도착한 사람은 다리 아래에 배를 매고 다음 날 아침까지 기다립니다.`,
  TypeScript: `export interface LockOptions {\n  readonly chamber: number;\n  readonly maxBoats?: number | undefined;\n}\n\nexport function createLock({ chamber, maxBoats = 12 }: LockOptions): Lock {\n  const waiting: Boat[] = [];\n  let level = 0;\n\n  async function fill(): Promise<void> {\n    while (level < chamber) {\n      level += await pump.next();\n      if (level > chamber) throw new RangeError(\`\${level} is more than \${chamber}\`);\n    }\n  }\n\n  return {\n    enter(boat) {\n      if (waiting.length >= maxBoats) return false;\n      waiting.push(boat);\n      return true;\n    },\n    async leave() {\n      await fill();\n      return waiting.splice(0).map(({ name }) => name.toUpperCase());\n    },\n  };\n}\n`,
  Python: `import asyncio\nfrom dataclasses import dataclass, field\n\n\n@dataclass\nclass Lock:\n    chamber: int\n    max_boats: int = 12\n    waiting: list[str] = field(default_factory=list)\n\n    async def fill(self) -> None:\n        level = 0\n        while level < self.chamber:\n            level += await pump.next_level()\n            if level > self.chamber:\n                raise ValueError(f"{level} is more than {self.chamber}")\n\n    def enter(self, boat: str) -> bool:\n        """Lets a boat in, if there is room."""\n        if len(self.waiting) >= self.max_boats:\n            return False\n        self.waiting.append(boat)\n        return True\n\n\nif __name__ == "__main__":\n    asyncio.run(Lock(chamber=7).fill())\n`,
  SQL: `SELECT c.id, c.name, COUNT(o.id) AS orders, SUM(o.total) AS revenue\nFROM customers AS c\nLEFT JOIN orders AS o ON o.customer_id = c.id AND o.created_at >= '2026-01-01'\nWHERE c.country IN ('DE', 'FR', 'PL') AND c.deleted_at IS NULL\nGROUP BY c.id, c.name\nHAVING SUM(o.total) > 1000\nORDER BY revenue DESC\nLIMIT 50;\n`,
  "compact JSON": JSON.stringify(ROWS),
  "indented JSON": JSON.stringify(ROWS.slice(0, 15), null, 2),
  HTML: `<!doctype html>\n<html lang="en">\n  <head>\n    <meta charset="utf-8" />\n    <title>Boats in line</title>\n    <link rel="stylesheet" href="/style.css" />\n  </head>\n  <body class="page dark">\n    <h1 id="title">Boats in line</h1>\n    <ul class="boats">\n      <li data-id="17"><a href="/boats/17">Marta</a> <span class="muted">since 08:15</span></li>\n      <li data-id="18"><a href="/boats/18">Old Ben</a> <span class="muted">since 08:40</span></li>\n    </ul>\n    <button type="submit" disabled>Open the gate</button>\n  </body>\n</html>\n`,
  "a table in Markdown": `| ${"limit".padEnd(40)} | default | unit |\n| ${"-".repeat(40)} | ------- | ---- |\n${["calls that wait", "bytes of a job", "seconds of a cooldown", "retries of an attempt"].map((name, index) => `| ${name.padEnd(40)} | ${String((index + 1) * 1_000).padEnd(7)} | ${"each".padEnd(4)} |`).join("\n")}\n`,
  "a log": Array.from(
    { length: 12 },
    (_, index) =>
      `2026-11-28T13:0${index % 10}:17.${String(index * 71).padStart(3, "0")}Z INFO  worker[${4_100 + index}] job=${uuid(index)} attempt=1 took=${index * 13}ms status=200 path=/v1/charges`,
  ).join("\n"),
  CSV: `id,name,country,total,paid\n${Array.from({ length: 30 }, (_, index) => `${10_000 + index * 313},boat-${index},DE,${(index * 7.35).toFixed(2)},${index % 2 === 0}`).join("\n")}\n`,
  base64: bytes(1_500, "base64").toString("base64"),
  "base64 for URLs": bytes(1_500, "base64url").toString("base64url"),
  hexadecimal: bytes(600, "hex").toString("hex"),
  UUIDs: Array.from({ length: 25 }, (_, index) => uuid(index)).join("\n"),
  URLs: Array.from(
    { length: 12 },
    (_, index) =>
      `https://shop.example.com/en/products/blue-kettle-${index}?utm_source=newsletter&utm_campaign=autumn_sale&ref=${index * 7_919}`,
  ).join("\n"),
  "a chat with emoji": `Yesss 🎉🎉 we made it!! 😂😂😂 see you at the lock at 8 🚤💨\nok 👍🏽 bring snacks pls 🥐🧀🍎 and the dog 🐕❤️\nhaha he already sleeps 😴💤 good night 🌙✨🌟\n🙈🙉🙊 sorry wrong chat 😅 family pic later 👨‍👩‍👧‍👦📸 🇩🇪🇫🇷🇵🇱`,
  "runs of line breaks and spaces": `first${"\n".repeat(40)}second${" ".repeat(120)}third${"\n\n\n".repeat(20)}fourth\n${"        \n".repeat(20)}fifth${"\r\n".repeat(30)}sixth${"\t".repeat(24)}seventh`,
  mathematics: `Let f: ℝ → ℝ with f(x) = x² − 3x + 2. Then f'(x) = 2x − 3, so the minimum lies at x = 3/2 with f(3/2) = −1/4. For all ε > 0 there is δ > 0 such that |x − a| < δ ⇒ |f(x) − f(a)| < ε. Moreover ∑_{k=1}^{n} k = n(n+1)/2 and ∫₀¹ x² dx = 1/3; hence √2 ≈ 1.4142 and π ≈ 3.14159.`,
};
