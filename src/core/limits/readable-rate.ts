/**
 * The grammar of `rate.ts` for the compiler: a rate or time that is written out in the code, and cannot be read, is a
 * compile error. What is known only as a string is read when it is given.
 */
import type { RateInput, TimeUnit } from "./rate.ts";

/** `Rate` if it can be read; else what to write instead, to which no rate is assignable. */
type ReadableRate<Rate> = Rate extends string
  ? IsKnown<Rate> extends true
    ? Rate extends `${infer Calls}/${infer Per}`
      ? [IsCount<WithoutSpaceAfter<TrimStart<Calls>>>, IsTime<Per>] extends [true, true]
        ? Rate
        : Write<RateForm>
      : Write<RateForm>
    : Rate
  : Rate extends { readonly per: infer Per }
    ? { readonly per: ReadableTime<Per> }
    : Rate;

/** `Time` if it can be read; else what to write instead. */
export type ReadableTime<Time> = Time extends string
  ? IsKnown<Time> extends true
    ? IsTime<Time> extends true
      ? Time
      : Write<TimeForm>
    : Time
  : Time;

/** A rate in an option: what it was inferred as, if it can be read. */
export type Readable<Rate extends RateInput> = RateInput extends Rate
  ? Rate
  : Rate & ReadableRate<Rate>;

/** No value is one: the compiler shows the form to write. A text alone would be reduced to `undefined` in its message. */
interface Write<Form extends string> {
  readonly [form]: Form;
}
declare const form: unique symbol;

type RateForm = 'whole calls per time, such as "100/s", "60/minute" or "1/2s"';
type TimeForm = 'a time such as "500ms", "1s", "5 minutes", "1h" or "1d"';

type Digit = "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9";
type Space = " " | "\t" | "\n";

/** Whether a string is one text, and not any of many. */
type IsKnown<Text extends string> = Record<never, never> extends Record<Text, 1> ? false : true;

/** Whether a text is a whole number from 1. */
type IsCount<Text extends string> = Text extends `0${infer Rest}` ? IsCount<Rest> : AreDigits<Text>;
type AreDigits<Text extends string> = Text extends `${Digit}${infer Rest}`
  ? Rest extends ""
    ? true
    : AreDigits<Rest>
  : false;

/** Whether a text is a unit of time, with or without a number before it. */
type IsTime<Text extends string> =
  Trim<Text> extends TimeUnit ? true : true extends IsCountOf<Trim<Text>, TimeUnit> ? true : false;
/** For each unit, whether the text is a number of them. */
type IsCountOf<Text extends string, Unit extends TimeUnit> = Unit extends TimeUnit
  ? Text extends `${infer Count}${Unit}`
    ? IsCount<WithoutSpaceAfter<Count>>
    : false
  : false;

type Trim<Text extends string> = Text extends `${infer Rest}${Space}`
  ? Trim<Rest>
  : TrimStart<Text>;
type TrimStart<Text extends string> = Text extends `${Space}${infer Rest}` ? TrimStart<Rest> : Text;
type WithoutSpaceAfter<Text extends string> = Text extends `${infer Rest} ` ? Rest : Text;
