package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// Limits of a question: [Elicitation.Clean] cuts a longer message, [Elicitation.Check] refuses what exceeds the other
// limits.
const (
	maxMessage = 8 << 10  // bytes
	maxURL     = 2 << 10  // bytes
	maxSchema  = 64 << 10 // bytes
	maxFields  = 64
)

// Clean returns q with its message as plain text of at most 8 KiB: without invisible characters and without
// control characters other than line breaks and tabs, which could hide text or control a terminal.
func (q Elicitation) Clean() Elicitation {
	q.Message = visible.Cut(visibleText(q.Message), maxMessage, "… [cut]")
	return q
}

func visibleText(s string) string { return visible.Text(strings.ToValidUTF8(s, "")) }

// Check returns why q may not be asked, or nil. A page must have an absolute http or https URL of at most 2 KiB
// without a user name in it; a form must have a schema of at most 64 KiB, an object of at most 64 fields, each a
// text, a number, a boolean, a choice or a list of choices.
func (q Elicitation) Check() error {
	if q.URL != "" {
		return checkPage(q.URL)
	}
	if len(q.Schema) > maxSchema {
		return fmt.Errorf("the form's schema has %d bytes; at most %d are allowed", len(q.Schema), maxSchema)
	}
	var s struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(q.Schema, &s); err != nil {
		return fmt.Errorf("the form's schema cannot be read: %w", err)
	}
	if s.Type != "object" {
		return fmt.Errorf("the form's schema has the type %q; it must be an object", s.Type)
	}
	if len(s.Properties) > maxFields {
		return fmt.Errorf("the form has %d fields; at most %d are allowed", len(s.Properties), maxFields)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := checkField(s.Properties[name]); err != nil {
			return fmt.Errorf("field %.40q of the form: %w", name, err)
		}
	}
	return nil
}

func checkPage(page string) error {
	if len(page) > maxURL {
		return fmt.Errorf("the URL of the page has %d bytes; at most %d are allowed", len(page), maxURL)
	}
	u, err := url.Parse(page)
	switch {
	case err != nil:
		return fmt.Errorf("the URL of the page cannot be read: %w", err)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return fmt.Errorf("%.80q is not a web page; the URL must be an absolute http or https URL", page)
	case u.User != nil: // https://bank.example@evil.example is a page of evil.example
		return fmt.Errorf("the URL of the page contains a user name; its host is %q", u.Host)
	case visibleText(page) != page || strings.ContainsAny(page, " \n\t"):
		return fmt.Errorf("the URL of the page contains invisible characters or spaces; its host is %q", u.Host)
	}
	return nil
}

// checkField checks that a field is a primitive or a list of choices, as MCP 2025-11-25
// requires (PrimitiveSchemaDefinition).
func checkField(raw json.RawMessage) error {
	var f struct {
		Type  string `json:"type"`
		Items *struct {
			Type  string            `json:"type"`
			Enum  []string          `json:"enum"`
			AnyOf []json.RawMessage `json:"anyOf"`
		} `json:"items"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("its schema cannot be read: %w", err)
	}
	switch f.Type {
	case "string", "number", "integer", "boolean":
		return nil
	case "array":
		if f.Items != nil && (f.Items.Type == "string" && len(f.Items.Enum) > 0 || len(f.Items.AnyOf) > 0) {
			return nil
		}
		return errors.New("an array must list its choices in items.enum or items.anyOf")
	}
	return fmt.Errorf("its type is %q; forms have string, number, integer, boolean, and arrays of choices", f.Type)
}

// Site returns the host and port of the page's URL, for display. It is empty for a form.
func (q Elicitation) Site() string {
	u, err := url.Parse(q.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// secretName matches names of secrets. MCP allows only a page to ask for secrets, since the client does not see what is
// typed there.
var secretName = lazy.Regexp(`(?i)pass[\s_-]?(word|wd|phrase|code)|secret|private[\s_-]?key|api[\s_-]?key|(access|auth|bearer|refresh)[\s_-]?token|credential|(credit|debit)[\s_-]?card|card[\s_-]?number|\bcv[vc]2?\b|\bpin\b`)

// Warnings returns sentences to show to the user before they answer q. A question without warnings may still do harm.
func (q Elicitation) Warnings() []string {
	var out []string
	if u, err := url.Parse(q.URL); err == nil && u.Host != "" {
		if u.Scheme == "http" {
			out = append(out, "The page is not encrypted: what is typed there can be read on the way.")
		}
		site := strings.ToLower(u.Host)
		if strings.HasPrefix(site, "xn--") || strings.Contains(site, ".xn--") || strings.ContainsFunc(site, func(r rune) bool { return r > unicode.MaxASCII }) {
			out = append(out, "The name of the site has letters that may look like others: "+site)
		}
		return out
	}
	namesSecret := func(s string) bool { return secretName().MatchString(visibleText(s)) }
	for name, f := range q.fields() {
		if f.Type == "string" && slices.ContainsFunc([]string{name, f.Title, f.Description}, namesSecret) {
			out = append(out, fmt.Sprintf("The field %q seems to ask for a secret. Servers must not ask for secrets in a form: do not fill one in.", visibleText(name)))
		}
	}
	return out
}

// A field is the part of the schema of a form's field that Elicitation uses.
type field struct {
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Default     exactValue `json:"default"`
}

// An exactValue is a JSON value. A number that a float64 may not represent exactly is kept as a json.Number.
type exactValue struct{ value any }

func (e *exactValue) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &e.value); err != nil {
		return err
	}
	if f, ok := e.value.(float64); ok && math.Abs(f) >= 1<<53 {
		e.value = json.Number(data)
	}
	return nil
}

// fields yields the fields of the form, sorted by name.
func (q Elicitation) fields() iter.Seq2[string, field] {
	var s struct {
		Properties map[string]field `json:"properties"`
	}
	_ = json.Unmarshal(q.Schema, &s) // parts of another type count as absent; Check refuses what is not JSON
	return func(yield func(string, field) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if !yield(name, s.Properties[name]) {
				return
			}
		}
	}
}

// Accept returns the answer that accepts q with the content that the user filled in. Fields that the user left out get
// the schema's default, if there is one. Accept fails if the answer does not fit the schema or content has a field that
// the form does not have.
func (q Elicitation) Accept(content map[string]any) (Answer, error) {
	if q.URL != "" {
		if len(content) > 0 {
			return Answer{}, errors.New("a page is accepted without content: what is filled in there goes to the site")
		}
		return Answer{Action: ActionAccept}, nil
	}
	filled := map[string]any{}
	inForm := map[string]bool{}
	for name, f := range q.fields() {
		inForm[name] = true
		if f.Default.value != nil {
			filled[name] = f.Default.value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if !inForm[name] {
			return Answer{}, fmt.Errorf("the form has no field %q", name)
		}
		filled[name] = content[name]
	}
	raw, err := json.Marshal(filled)
	if err != nil {
		return Answer{}, fmt.Errorf("encode the filled form: %w", err)
	}
	args, err := tool.Arguments(form{q.Schema}, raw)
	if err != nil {
		return Answer{}, err
	}
	if len(args.Repaired) > 0 {
		return Answer{}, fmt.Errorf("the filled form does not fit its schema: %s", strings.Join(args.Repaired, "; "))
	}
	return Answer{Action: ActionAccept, Content: filled}, nil
}

// A form is a tool with the form's schema, so that [tool.Arguments], which limits untrusted schemas, can validate a
// filled form.
type form struct{ schema json.RawMessage }

func (f form) Info() tool.Info { return tool.Info{Name: "the form", Input: f.schema} }

func (f form) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(func(tool.Chunk, error) bool) {}
}
