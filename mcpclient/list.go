package mcpclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// Limits of a list. What exceeds them is left out, with a reason in Skipped.
const (
	maxPages       = 1000
	maxEntries     = 10_000
	maxListBytes   = 64 << 20
	maxToolBytes   = 1 << 20
	maxSchemaDepth = 64
	maxNameBytes   = 256
	maxToolGroups  = 32
)

// A Skipped is a tool of the server that is not used, and why.
type Skipped struct {
	Name   string `json:"name"` // on the server; "*" for a problem of the whole list
	Reason string `json:"reason"`
}

// A listEntry is an entry of tools/list or groups/list, decoded as far as needed. Schemas stay raw, so that the model
// also gets the parts that are not decoded.
type listEntry struct {
	Name        string                     `json:"name"`
	Title       string                     `json:"title"`
	Description string                     `json:"description"`
	Input       json.RawMessage            `json:"inputSchema"`
	Output      json.RawMessage            `json:"outputSchema"`
	Meta        map[string]json.RawMessage `json:"_meta"`
	Annotations annotations                `json:"annotations"`
	Execution   json.RawMessage            `json:"execution"`

	raw json.RawMessage // the whole entry
}

// annotations are the tool annotations that the client uses, and the whole object.
type annotations struct {
	Title      string `json:"title"`
	ReadOnly   *bool  `json:"readOnlyHint"`
	Idempotent *bool  `json:"idempotentHint"`

	raw json.RawMessage // nil if empty
}

func (a *annotations) UnmarshalJSON(data []byte) error {
	type plain annotations // without this method
	if err := strictjson.Unmarshal(data, (*plain)(a)); err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) > len("{}") && data[0] == '{' {
		a.raw = bytes.Clone(data)
	}
	return nil
}

// taskSupport returns whether the tool can be called as a task: "optional", "required", or any other text if it cannot.
func (r *listEntry) taskSupport() string {
	var e struct {
		TaskSupport string `json:"taskSupport"`
	}
	_ = json.Unmarshal(r.Execution, &e)
	return e.TaskSupport
}

// groups returns the names of the groups that the entry is in.
func (r *listEntry) groups() []string {
	var names []string
	_ = json.Unmarshal(r.Meta[mcpcontent.GroupsKey], &names)
	names = slices.DeleteFunc(names, func(n string) bool { return !validGroup(n) })
	return names[:min(len(names), maxToolGroups)]
}

// A snapshot is a server's list at one time. It is immutable.
type snapshot struct {
	tools        []tool.Tool // sorted by name
	remotes      []*remoteTool
	skipped      []Skipped
	groups       []Group
	withheld     []*remoteTool // see [Pins]
	textWithheld bool          // the server's text has changed, and the pinned text is used

	instructions string // what the model gets: the server's instructions, or the pinned ones
	digest       [sha256.Size]byte
	rawGroups    []json.RawMessage
	until        time.Time // when it expires; zero if only an announced change ends it
}

// A page is a result of tools/list or another list method. Optional members stay raw, so that one of a wrong
// type does not make the page unusable.
type page struct {
	Tools     []json.RawMessage `json:"tools"`
	Groups    []json.RawMessage `json:"groups"`
	Prompts   []json.RawMessage `json:"prompts"`
	Resources []json.RawMessage `json:"resources"`
	Templates []json.RawMessage `json:"resourceTemplates"`
	Skills    []json.RawMessage `json:"skills"`
	Next      json.RawMessage   `json:"nextCursor"`
	TTL       json.RawMessage   `json:"ttlMs"`
}

// listAll requests all pages of a list and returns the entries. If it stops early, cut says why.
func (c *conn) listAll(ctx context.Context, method string) (items []json.RawMessage, ttl time.Duration, cut string, err error) {
	seen := map[string]bool{}
	size := 0
	cursor := ""
	for n := 1; ; n++ {
		var params map[string]any
		if cursor != "" {
			params = map[string]any{"cursor": cursor}
		}
		raw, err := c.request(ctx, method, params, nil)
		if err != nil {
			return nil, 0, "", err
		}
		var list page
		if err := strictjson.Unmarshal(raw, &list); err != nil {
			return nil, 0, "", fmt.Errorf("%w: the answer to %s is not a list: %.80s", errMalformed, method, raw)
		}
		var ms float64
		if json.Unmarshal(list.TTL, &ms) == nil && ms > 0 {
			ttl = milliseconds(ms)
		}
		size += len(raw)
		items = append(items, slices.Concat(list.Tools, list.Groups, list.Skills)...)
		for _, item := range slices.Concat(list.Prompts, list.Resources, list.Templates) {
			items = append(items, visible.JSON(item, visible.Words))
		}
		next := ""
		_ = json.Unmarshal(list.Next, &next)
		switch {
		case next == "":
			return items, ttl, "", nil
		case seen[next]:
			return items, ttl, fmt.Sprintf("the server repeats the cursor %.40q", next), nil
		case len(items) >= maxEntries:
			return items, ttl, fmt.Sprintf("more than %d entries", maxEntries), nil
		case size >= maxListBytes:
			return items, ttl, fmt.Sprintf("more than %d bytes", maxListBytes), nil
		case n >= maxPages:
			return items, ttl, fmt.Sprintf("more than %d pages", maxPages), nil
		}
		seen[next] = true
		cursor = next
	}
}

// list requests the tools and groups.
func (c *catalogue) list(ctx context.Context, cn *conn) (*snapshot, error) {
	raws, ttl, cut, err := cn.listAll(ctx, "tools/list")
	if err != nil && !hasCode(err, codeMethodNotFound) { // some servers have only prompts or resources
		return nil, err
	}
	groups, err := cn.listGroups(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if last := c.snap.Load(); err != nil && last != nil {
		groups = last.rawGroups
	}
	text := textOf(cn.server.Instructions, groups)
	text.partial = err != nil
	s := build(c, raws, groups, text, cn.protocol.usesHeaders())
	s.rawGroups = groups
	s.offerTasks(cn)
	if err != nil {
		s.skipped = append(s.skipped, Skipped{"*", clip("the server's groups could not be listed: "+visible.Text(err.Error()), maxNameBytes)})
	}
	if cut != "" {
		s.skipped = append(s.skipped, Skipped{"*", "the list was cut: " + cut})
	}
	s.digest = digest(s)
	if c.cfg.ListTTL > 0 {
		ttl = c.cfg.ListTTL
	}
	if (len(s.withheld) > 0 || s.textWithheld) && (ttl == 0 || ttl > retryListAfter) {
		ttl = retryListAfter // the user may accept the change meanwhile
	}
	if ttl > 0 {
		s.until = time.Now().Add(ttl)
	}
	return s, nil
}

// build makes the snapshot of a list. Invalid entries are skipped. If overHTTP is set, tools with wrong x-mcp-header
// annotations are skipped too, as the specification requires.
func build(c *catalogue, raws, groups []json.RawMessage, text *serverText, overHTTP bool) *snapshot {
	s := &snapshot{}
	var entries []*listEntry
	names := map[string]bool{}
	if len(raws) > maxEntries {
		s.skipped = append(s.skipped, Skipped{"*", fmt.Sprintf("the list was cut: more than %d entries", maxEntries)})
		raws = raws[:maxEntries]
	}
	for i, raw := range raws {
		r, err := decodeTool(raw, overHTTP)
		name := r.Name
		if name == "" {
			name = fmt.Sprintf("#%d", i)
		}
		if err == nil && names[r.Name] {
			err = errors.New("the name occurs twice; the first is used")
		}
		if err != nil {
			s.skipped = append(s.skipped, Skipped{clip(name, maxNameBytes), err.Error()})
			continue
		}
		names[r.Name] = true
		if c.cfg.includes(r.Name) {
			entries = append(entries, r)
		}
	}
	var textDefinition json.RawMessage
	if c.cfg.Pins != nil {
		textDefinition = text.definition()
	}
	// names includes excluded tools, so that a filter does not change the names of others.
	modelNames := toolNames(c.cfg.Prefix, slices.Collect(maps.Keys(names)))
	for _, r := range entries {
		t := newRemoteTool(c, r, modelNames)
		t.textDefinition = textDefinition
		s.remotes = append(s.remotes, t)
	}
	slices.SortFunc(s.remotes, func(a, b *remoteTool) int { return cmp.Compare(a.info.Name, b.info.Name) })
	allowedText := c.applyPins(s, text)
	for _, t := range s.remotes {
		s.tools = append(s.tools, t)
	}
	if allowedText != nil {
		s.instructions = allowedText.Instructions
	}
	s.groups = buildGroups(c, s.remotes, groups, allowedText)
	return s
}

func decodeTool(raw json.RawMessage, overHTTP bool) (*listEntry, error) {
	r := &listEntry{raw: raw}
	if err := strictjson.Unmarshal(raw, r); err != nil {
		var named struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(raw, &named)
		return &listEntry{Name: named.Name}, fmt.Errorf("the definition cannot be read: %w", err)
	}
	if len(raw) > maxToolBytes {
		return r, fmt.Errorf("the definition has %d bytes; %d are allowed", len(raw), maxToolBytes)
	}
	if r.Name == "" || len(r.Name) > maxNameBytes {
		return r, fmt.Errorf("the name is empty or longer than %d bytes", maxNameBytes)
	}
	var err error
	if r.Input, err = inputSchema(r.Input); err != nil {
		return r, err
	}
	if hidesText(r.Input) || hidesText(r.Output) {
		return r, errors.New("a name or a value in a schema has invisible characters, which only a model reads")
	}
	if out := bytes.TrimSpace(r.Output); len(out) == 0 || out[0] != '{' {
		r.Output = nil
	} else if err := checkDepth("outputSchema", out); err != nil {
		return r, err
	}
	if overHTTP {
		if err := mcp.ValidateParamHeaderAnnotations(&mcp.Tool{Name: r.Name, RawInputSchema: r.Input}); err != nil {
			return r, err
		}
	}
	return r, nil
}

// hidesText reports whether names or values in a schema have invisible text. It cannot be removed there, because the
// server compares names and values.
func hidesText(schema json.RawMessage) bool {
	ascii := !bytes.Contains(schema, []byte(`\u`)) && !slices.ContainsFunc(schema, func(c byte) bool { return c >= utf8.RuneSelf })
	return !ascii && visible.Carries(string(strictjson.Canonical(visible.JSON(schema, visible.Words))))
}

// withoutDialect returns a schema without the name of its dialect ($schema), which can be a tenth of a tool's bytes. No
// model needs it, and the keywords decide how a schema is checked.
func withoutDialect(schema json.RawMessage) json.RawMessage {
	const key = "$schema"
	if !bytes.Contains(schema, []byte(key)) {
		return schema
	}
	dec := json.NewDecoder(bytes.NewReader(schema))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return schema
	}
	for first := true; ; first = false {
		start := dec.InputOffset()
		if !dec.More() {
			return schema
		}
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return schema
		}
		if name != key {
			continue
		}
		rest := schema[dec.InputOffset():]
		if first { // also remove the comma before the next member
			rest = bytes.TrimPrefix(bytes.TrimSpace(rest), []byte(","))
		}
		return slices.Concat(schema[:start], rest)
	}
}

// inputSchema returns the schema unchanged. If it is missing or true, it becomes one that accepts any object.
func inputSchema(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0, bytes.Equal(raw, []byte("null")), bytes.Equal(raw, []byte("true")):
		return json.RawMessage(`{"type":"object"}`), nil
	case raw[0] != '{':
		return nil, fmt.Errorf("inputSchema must be an object, it is %.40s", raw)
	}
	return raw, checkDepth("inputSchema", raw)
}

// checkDepth rejects a schema that is nested too deep for recursion.
func checkDepth(name string, raw []byte) error {
	if d := depth(raw); d > maxSchemaDepth {
		return fmt.Errorf("%s is %d levels deep; %d are allowed", name, d, maxSchemaDepth)
	}
	return nil
}

// depth returns how deep valid JSON is nested.
func depth(raw []byte) int {
	deepest, level := 0, 0
	inString := false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			level++
			deepest = max(deepest, level)
		case b == '}' || b == ']':
			level--
		}
	}
	return deepest
}

// digest returns a hash of what the model and the toolkit see of a snapshot.
func digest(s *snapshot) (d [sha256.Size]byte) {
	h := sha256.New()
	var size [8]byte
	put := func(parts ...string) {
		for _, p := range parts { // write the length too, so that no two lists have the same bytes
			binary.LittleEndian.PutUint64(size[:], uint64(len(p)))
			h.Write(size[:])
			_, _ = io.WriteString(h, p)
		}
	}
	for _, t := range s.remotes {
		i := t.info
		put("tool", i.Name, i.Title, i.Description, t.remoteName, strconv.FormatBool(i.ReadOnly), strconv.FormatBool(t.idempotent), t.taskSupport)
		put(string(i.Input), string(i.Output), string(i.Annotations))
	}
	for _, g := range s.groups {
		put("group", g.Name, g.Title, g.Description)
		put(g.Parents...)
		put("members")
		put(g.members...)
	}
	put("instructions", s.instructions)
	for _, skipped := range s.skipped {
		put("skipped", skipped.Name, skipped.Reason)
	}
	h.Sum(d[:0])
	return d
}

// bestDescription returns the first description that is not empty.
func bestDescription(r *listEntry) string {
	for _, s := range []string{r.Description, r.Title, r.Annotations.Title} {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return r.Name
}
