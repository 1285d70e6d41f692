/**
 * Types that check literal rates and times by the grammar of `rate.ts`. An invalid literal in the code is a compile
 * error. Other strings are checked at run time.
 */
import type { RateInput, TimeUnit } from "./rate.ts";

/**
 * Resolves to `Rate` if it is valid. Otherwise resolves to a type that no rate matches, and that shows what to write
 * instead.
 */
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

/** Resolves to `Time` if it is valid. Otherwise resolves to a type that shows what to write instead. */
export type ReadableTime<Time> = Time extends string
  ? IsKnown<Time> extends true
    ? IsTime<Time> extends true
      ? Time
      : Write<TimeForm>
    : Time
  : Time;

/** The type of an option that is a rate. Accepts the inferred literal type if it is valid. */
export type Readable<Rate extends RateInput> = RateInput extends Rate
  ? Rate
  : Rate & ReadableRate<Rate>;

/**
 * A type without values, which makes the compiler show the expected form. In the compiler's message, a plain string
 * type would be reduced to `undefined`.
 */
interface Write<Form extends string> {
  readonly [form]: Form;
}
declare const form: unique symbol;

type RateForm = 'whole calls per time, such as "100/s", "60/minute" or "1/2s"';
type TimeForm = 'a time such as "500ms", "1s", "5 minutes", "1h" or "1d"';

type Digit = "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9";
type Space = " " | "\t" | "\n";

/** True for a single literal text. False for `string`. */
type IsKnown<Text extends string> = Record<never, never> extends Record<Text, 1> ? false : true;

/** True for the digits of a whole number of at least 1. */
type IsCount<Text extends string> = Text extends `0${infer Rest}` ? IsCount<Rest> : AreDigits<Text>;
type AreDigits<Text extends string> = Text extends `${Digit}${infer Rest}`
  ? Rest extends ""
    ? true
    : AreDigits<Rest>
  : false;

/** True for a unit of time, with or without a number in front. */
type IsTime<Text extends string> =
  Trim<Text> extends TimeUnit ? true : true extends IsCountOf<Trim<Text>, TimeUnit> ? true : false;
/** True for a number followed by a unit of time, such as `5min`. */
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
