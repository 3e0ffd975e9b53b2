package catalog_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/catalog"
)

// TestDefault: the table of the package has a date, a source and well-known models.
func TestDefault(t *testing.T) {
	d := catalog.Default()
	if !regexp.MustCompile(`^20\d\d-\d\d-\d\d$`).MatchString(d.Date) || d.Currency != "USD" || len(d.Sources) == 0 {
		t.Errorf("%+v", d)
	}
	for _, name := range []string{"gpt-6-astra", "gpt-5.4-mini-2026-03-17", "claude-opus-4-5-20251101", "claude-haiku-5-5"} {
		m, ok := d.Find(name)
		if !ok || m.Price == nil || m.Prompt() < 100_000 || m.Prompt()+m.MaxOutput > m.Window {
			t.Errorf("%s: %+v, %v", name, m, ok)
		}
	}
	for _, name := range []string{"", "gpt-7", "gpt-6-astra-fast", "gpt-6-astra-2026-13-01", "-20251101"} {
		if m, ok := d.Find(name); ok {
			t.Errorf("%q is known: %+v", name, m)
		}
	}
}

// TestPrompt checks how many tokens of the window remain for the prompt.
func TestPrompt(t *testing.T) {
	for _, row := range [][3]int{{0, 0, 0}, {100, 0, 100}, {100, 30, 70}, {100, 100, 50}, {0, 100, 0}} {
		if got := (catalog.Model{Window: row[0], MaxOutput: row[1]}).Prompt(); got != row[2] {
			t.Errorf("%v: %d", row, got)
		}
	}
}

// TestCost: each kind of token has its own price, and a long prompt has other prices.
func TestCost(t *testing.T) {
	table := parse(t, `"m": {"price": {"input": 10, "output": 50, "cached": 1, "cache_write": 12, "long": {"above": 1000, "input": 20, "output": 75, "cached": 2}}},
		"plain": {"price": {"input": 10, "output": 50}}, "free": {"price": {"input": 0, "output": 0}}`)
	for _, row := range []struct {
		model string
		u     message.Usage
		want  float64 // of a million such answers
	}{
		{"m", message.Usage{}, 0},
		{"m", message.Usage{Input: 100, Output: 10}, 1000 + 500},
		{"m", message.Usage{Input: 100, Cached: 90, Output: 10}, 100 + 90 + 500},
		{"m", message.Usage{Input: 100, Cached: 50, CacheWrite: 50}, 50 + 600},
		{"m", message.Usage{Input: 100, Cached: 500, CacheWrite: 500}, 100 + 1200}, // no server reports both
		{"m", message.Usage{Input: 1000}, 10_000},
		{"m", message.Usage{Input: 1001, Output: 1}, 20_020 + 75},
		{"m", message.Usage{Input: 2000, Cached: 1000, CacheWrite: 1000}, 2000 + 20_000},
		{"plain", message.Usage{Input: 100, Cached: 50, CacheWrite: 50}, 1000},
		{"free", message.Usage{Input: 100, Output: 100}, 0},
		{"m", message.Usage{Input: -100, Cached: -100, CacheWrite: -100, Output: -100}, 0}, // of a broken server: it must not raise a limit
		{"m-2026-01-31", message.Usage{Input: 1}, 10},
		{"unknown", message.Usage{Input: 1, Output: 1}, 60}, // the price of plain
	} {
		price, err := table.Price("plain")
		if err != nil {
			t.Fatal(err)
		}
		if got := price(row.model, row.u) * 1e6; math.Abs(got-row.want) > 1e-6 {
			t.Errorf("%s %+v costs %g, want %g", row.model, row.u, got, row.want)
		}
	}
	if _, err := table.Price("unknown"); err == nil || !strings.Contains(err.Error(), `no price of the model "unknown" is known`) {
		t.Error(err)
	}
}

func parse(t *testing.T, models string) *catalog.Table {
	t.Helper()
	table, err := catalog.Parse([]byte(`{"models": {` + models + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestWith: With replaces and adds entries.
func TestWith(t *testing.T) {
	both := catalog.Default().With(parse(t, `"gpt-6-astra": {"window": 5}, "own": {"window": 7}`))
	for name, want := range map[string]int{"gpt-6-astra": 5, "own": 7, "gpt-6-sol": 1_050_000} {
		if m, _ := both.Find(name); m.Window != want {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m, _ := catalog.Default().Find("gpt-6-astra"); m.Window == 5 {
		t.Error("the other table has changed")
	}
}

// TestCurrencies: prices in two currencies are not added up.
func TestCurrencies(t *testing.T) {
	own, err := catalog.Parse([]byte(`{"currency": "EUR", "models": {"own": {"price": {"input": 1, "output": 2}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	both := catalog.Default().With(own)
	if _, err := both.Price("gpt-6-sol"); err == nil || both.Currency != "EUR" {
		t.Errorf("a price in USD in a table in %s", both.Currency)
	}
	if m, _ := both.Find("gpt-6-sol"); m.Window == 0 {
		t.Error("the window is missing")
	}
	if price, err := both.Price("own"); err != nil || price("gpt-6-sol", message.Usage{Input: 1_000_000}) != 1 {
		t.Error(err)
	}
}

// TestWrong: the error for an invalid entry names it and the remedy.
func TestWrong(t *testing.T) {
	for entry, want := range map[string]string{
		`{"window": -1}`:                                     `model "m": window is -1 and max_output 0; write a number of tokens, or leave it out`,
		`{"max_output": -1}`:                                 `write a number of tokens`,
		`{"window": "big"}`:                                  `cannot unmarshal string into Go struct field Model.window of type int; the members are window,`,
		`{"windows": 1}`:                                     `model "m": unknown field "windows"; the members are window, max_output and price with`,
		`{"window": 10, "max_output": 20}`:                   `max_output is 20, but the window that includes it only 10; correct one of them`,
		`{"price": {"input": 1}}`:                            `price lacks input or output; write both, 0 if one costs nothing`,
		`{"price": {}}`:                                      `price lacks input or output`,
		`{"price": {"input": -1, "output": 1}}`:              `price.input is -1; write what 1,000,000 tokens cost, 0 if nothing`,
		`{"price": {"input": 1, "output": -2}}`:              `price.output is -2`,
		`{"price": {"input": 1, "output": 1, "cached": 2}}`:  `price.cached is 2, more than input, which is 1; exchange them, or leave cached out`,
		`{"price": {"input": 1, "output": 1, "cached": -2}}`: `price.cached is -2`,
		`{"price": {"input": 1, "output": 1, "cache": 2}}`:   `unknown field "cache"`,
		`{"price": {"input": 1, "output": 1, "long": {"input": 2, "output": 2}}}`:                          `price.long.above is 0`,
		`{"price": {"input": 1, "output": 1, "long": {"above": 9, "input": 2}}}`:                           `price.long lacks input or output`,
		`{"price": {"input": 1, "output": 1, "long": {"above": 9, "input": 2, "output": 2, "cached": 3}}}`: `price.long.cached is 3`,
		`[]`:   `model "m": `,
		`null`: `model "m": null is not an object; the members are window,`,
		`1`:    `model "m": `,
	} {
		_, err := catalog.Parse([]byte(`{"models": {"m": ` + entry + `}}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", entry, err, want)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `{"models": []}`, `{"model": {}}`, `{} {}`, `{"date": 5}`} {
		if _, err := catalog.Parse([]byte(text)); err == nil || !strings.HasSuffix(err.Error(), "; the members are date, currency, sources and models") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse: what is accepted has no cost below 0, and no prompt beyond its window.
func FuzzParse(f *testing.F) {
	f.Add(`{"window": 10, "max_output": 5, "price": {"input": 1, "output": 2, "cached": 0.5, "long": {"above": 3, "input": 2, "output": 2}}}`)
	f.Fuzz(func(t *testing.T, entry string) {
		table, err := catalog.Parse(fmt.Appendf(nil, `{"models": {"m": %s}}`, entry))
		if err != nil || !json.Valid([]byte(entry)) {
			return
		}
		m, ok := table.Find("m")
		if p := m.Prompt(); !ok || p < 0 || p > m.Window {
			t.Fatalf("%+v: %d", m, p)
		}
		if m.Price != nil && m.Price.Cost(message.Usage{Input: 10, Output: 3, Cached: 4, CacheWrite: 2}) < 0 {
			t.Fatalf("%+v", m.Price)
		}
	})
}

func ExampleTable_Price() {
	own, err := catalog.Parse([]byte(`{"models": {"my-model": {"window": 32000, "price": {"input": 0.2, "output": 0.6}}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	price, err := catalog.Default().With(own).Price("my-model")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("$%.4f\n", price("my-model", message.Usage{Input: 10_000, Output: 1000}))
	// Output: $0.0026
}
