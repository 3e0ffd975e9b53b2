// Package catalog knows the context windows, output limits and prices of models.
//
// [Default] is the table that comes with this package, from the pages of the vendors that it names, as they were on
// its date. Entries and members that those pages lack are left out. A table of your own replaces and adds entries:
//
//	own, err := catalog.Parse([]byte(`{"models": {"my-model": {"window": 32000, "price": {"input": 0.2, "output": 0.6}}}}`))
//	table := catalog.Default().With(own)
//	price, err := table.Price("my-model")
//	a, err := agent.New(agent.Config{Limits: agent.Limits{Cost: 2, Price: price}, …})
//
// An agent whose configuration has no Window.Tokens or Limits.Price uses Default.
//
// # The table
//
// It is a JSON object with "date", "currency" (USD if absent), "sources" and "models", an object with an entry for
// each model by its name in the vendor's API. Members of an entry, all optional:
//
//   - window: the limit on the tokens of a request and its answer together; max_output: the limit on the tokens of the
//     answer.
//   - price, for 1,000,000 tokens: input and output; cached, of input read from the provider's prompt cache;
//     cache_write, of input written to the cache. Without these two members that input costs as much as other input.
//   - long, in price: above, a number of input tokens, and the prices of all tokens of a request with more input.
package catalog

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

//go:embed models.json
var defaultTable []byte

// A Table has entries by the names of models. It is immutable.
type Table struct {
	Date     string // of the prices, such as 2026-11-22; empty if not known
	Currency string
	Sources  []string // the titles of the pages that it was made from
	models   map[string]Model
}

// A Model is an entry. A number that is not known is 0.
type Model struct {
	Window    int    `json:"window"`     // tokens of a request and its answer
	MaxOutput int    `json:"max_output"` // tokens of an answer
	Price     *Price `json:"price"`      // nil if it is not known
}

// A Price is what 1,000,000 tokens cost.
type Price struct {
	Rates
	Long *LongPrice `json:"long"` // of requests with a long prompt; nil if they cost the same
}

// Rates are prices of 1,000,000 tokens.
type Rates struct {
	Input      float64  `json:"input"` // required in a table, like Output, so that a forgotten price is not 0
	Output     float64  `json:"output"`
	Cached     *float64 `json:"cached"`      // of input from the prompt cache; nil means Input
	CacheWrite *float64 `json:"cache_write"` // of input that was put into the prompt cache; nil means Input
}

// A LongPrice is the price of a request with more input than Above.
type LongPrice struct {
	Above int `json:"above"`
	Rates
}

// Default returns the table that comes with this package.
var Default = sync.OnceValue(func() *Table {
	t, err := Parse(defaultTable)
	if err != nil {
		panic(err) // a test parses the table
	}
	return t
})

// Parse reads a table. An unknown member, a negative number, a price of cached input above that of other input and an output
// limit above the window are errors that name the entry.
func Parse(data []byte) (*Table, error) {
	var in struct {
		Date     string                     `json:"date"`
		Currency string                     `json:"currency"`
		Sources  []string                   `json:"sources"`
		Models   map[string]json.RawMessage `json:"models"`
	}
	if err := decode(data, &in); err != nil {
		return nil, fmt.Errorf("price table: %w; the members are date, currency, sources and models", err)
	}
	t := &Table{Date: in.Date, Currency: cmp.Or(in.Currency, "USD"), Sources: in.Sources, models: map[string]Model{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(in.Models)) {
		var m Model
		err := decode(in.Models[name], &m)
		if err != nil {
			err = fmt.Errorf("%w; the members are window, max_output and price with input, output, cached, cache_write and long", err)
		} else if err = m.check(); err == nil {
			err = complete(in.Models[name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("price table: model %q: %w", name, err))
		}
		t.models[name] = m
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// decode reads a JSON object whose members are all known.
func decode(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if string(bytes.TrimSpace(data)) == "null" {
		err = errors.New("null is not an object")
	}
	if _, end := dec.Token(); err == nil && end != io.EOF {
		err = errors.New("there is more after the object")
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// check returns an error for an invalid entry.
func (m *Model) check() error {
	switch {
	case m.Window < 0 || m.MaxOutput < 0:
		return fmt.Errorf("window is %d and max_output %d; write a number of tokens, or leave it out", m.Window, m.MaxOutput)
	case m.Window > 0 && m.MaxOutput > m.Window:
		return fmt.Errorf("max_output is %d, but the window that includes it only %d; correct one of them", m.MaxOutput, m.Window)
	case m.Price == nil:
		return nil
	}
	if err := m.Price.check("price"); err != nil {
		return err
	}
	long := m.Price.Long
	if long == nil {
		return nil
	}
	if long.Above <= 0 {
		return fmt.Errorf("price.long.above is %d; write the number of input tokens above which these prices apply", long.Above)
	}
	return long.check("price.long")
}

// complete checks that the prices of an entry include those of input and output: a missing price must not become 0.
func complete(entry json.RawMessage) error {
	type rates struct{ Input, Output *float64 }
	var m struct {
		Price *struct {
			rates
			Long *rates
		}
	}
	if err := json.Unmarshal(entry, &m); err != nil || m.Price == nil {
		return err
	}
	if m.Price.Input == nil || m.Price.Output == nil {
		return errors.New("price lacks input or output; write both, 0 if one costs nothing")
	}
	if l := m.Price.Long; l != nil && (l.Input == nil || l.Output == nil) {
		return errors.New("price.long lacks input or output; write both, 0 if one costs nothing")
	}
	return nil
}

func (r *Rates) check(where string) error {
	for _, p := range []struct {
		name  string
		value *float64
	}{{"input", &r.Input}, {"output", &r.Output}, {"cached", r.Cached}, {"cache_write", r.CacheWrite}} {
		if p.value != nil && *p.value < 0 {
			return fmt.Errorf("%s.%s is %g; write what 1,000,000 tokens cost, 0 if nothing", where, p.name, *p.value)
		}
	}
	if r.Cached != nil && *r.Cached > r.Input {
		return fmt.Errorf("%s.cached is %g, more than input, which is %g; exchange them, or leave cached out", where, *r.Cached, r.Input)
	}
	return nil
}

// With returns a table in the currency of own that has the entries of own, and those of t for other names: without
// prices if t is in another currency.
func (t *Table) With(own *Table) *Table {
	merged := *t
	merged.models = maps.Clone(t.models)
	if merged.Currency = own.Currency; own.Currency != t.Currency {
		for name, m := range merged.models {
			m.Price = nil
			merged.models[name] = m
		}
	}
	maps.Copy(merged.models, own.models)
	return &merged
}

// Find returns the entry of a model, by its name or by its name without a date at its end, as in
// gpt-5.4-2026-03-05 and claude-opus-4-5-20251101.
func (t *Table) Find(name string) (Model, bool) {
	m, ok := t.models[name]
	for _, layout := range []string{"-2006-01-02", "-20060102"} {
		if start := len(name) - len(layout); !ok && start > 0 {
			if _, err := time.Parse(layout, name[start:]); err == nil {
				m, ok = t.models[name[:start]]
			}
		}
	}
	return m, ok
}

// Prompt returns how many tokens a request may have: the window without the longest answer, but at least half of the
// window; 0 if the window is not known.
func (m Model) Prompt() int {
	if m.MaxOutput > m.Window/2 { // few answers are that long
		return m.Window / 2
	}
	return m.Window - m.MaxOutput
}

// Price returns a function for agent.Limits.Price, which returns the cost of an answer. A model without a price
// in the table costs as much as the named model. Price fails if the named model has no price.
func (t *Table) Price(name string) (func(model string, u message.Usage) float64, error) {
	named, ok := t.Find(name)
	if !ok || named.Price == nil {
		return nil, fmt.Errorf("no price of the model %q is known", name)
	}
	return func(model string, u message.Usage) float64 {
		if m, ok := t.Find(model); ok && m.Price != nil {
			return m.Price.Cost(u)
		}
		return named.Price.Cost(u)
	}, nil
}

// Cost returns what a request with its answer costs.
func (p *Price) Cost(u message.Usage) float64 {
	r := &p.Rates
	if p.Long != nil && u.Input > p.Long.Above {
		r = &p.Long.Rates
	}
	cached, written := min(u.Cached, u.Input), min(u.CacheWrite, u.Input)
	rest := max(0, u.Input-cached-written)
	sum := float64(rest)*r.Input + float64(cached)*orElse(r.Cached, r.Input) +
		float64(written)*orElse(r.CacheWrite, r.Input) + float64(u.Output)*r.Output
	return max(0, sum) / 1e6 // a server that reports negative numbers does not raise a limit
}

func orElse(p *float64, other float64) float64 {
	if p == nil {
		return other
	}
	return *p
}
