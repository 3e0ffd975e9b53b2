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

// Limits of a list. Tools that exceed them are in Client.Skipped.
const (
	maxPages       = 1000
	maxEntries     = 10_000
	maxListBytes   = 64 << 20
	maxToolBytes   = 1 << 20
	maxSchemaDepth = 64
	maxNameBytes   = 256
	maxToolGroups  = 32 // groups of a tool; further ones are ignored
)

// A Skipped is a tool of the server that is not used, and why.
type Skipped struct {
	Name   string `json:"name"` // the tool's name on the server; "*" for a problem of the whole list
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
	if len(data) > len("{}") && data[0] == '{' { // neither {} nor null
		a.raw = bytes.Clone(data)
	}
	return nil
}

// taskSupport returns execution.taskSupport. With "optional" or "required" the tool can be called as a task.
func (e *listEntry) taskSupport() string {
	var execution struct {
		TaskSupport string `json:"taskSupport"`
	}
	_ = json.Unmarshal(e.Execution, &execution) // an unreadable value is no support
	return execution.TaskSupport
}

// groups returns the names of the groups that contain the tool or group. Names that cannot be read are left out.
func (e *listEntry) groups() []string {
	var names []string
	_ = json.Unmarshal(e.Meta[mcpcontent.GroupsKey], &names)
	names = slices.DeleteFunc(names, func(n string) bool { return !validGroup(n) })
	return names[:min(len(names), maxToolGroups)]
}

// A snapshot is a server's list of tools and groups at one time. It is immutable.
type snapshot struct {
	tools        []tool.Tool   // sorted by name
	remotes      []*remoteTool // the tools without the wrapper taskTool
	skipped      []Skipped
	groups       []Group
	withheld     []*remoteTool // changed tools; see [Pins]
	textWithheld bool          // the server's text has changed, and the pinned text is used

	instructions string            // what the model gets: the server's instructions, or the pinned ones
	digest       [sha256.Size]byte // the result of digest
	rawGroups    []json.RawMessage // as in groups/list, for when the next groups/list fails
	expires      time.Time         // zero: only when the server announces a change
}

// A page is a result of tools/list or another list method. Next and TTL stay raw, so that a wrong type does not make the
// page unusable.
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

// listAll requests all pages of a list and returns the entries. If it leaves out pages, cut says why.
func (c *conn) listAll(ctx context.Context, method string) (items []json.RawMessage, ttl time.Duration, cut string, err error) {
	seen := map[string]bool{}
	listBytes := 0
	cursor := ""
	for pages := 1; ; pages++ {
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
		listBytes += len(raw)
		// Tools, groups and skills are cleaned where they are decoded: pins compare what the server wrote.
		items = append(items, slices.Concat(list.Tools, list.Groups, list.Skills)...)
		for _, item := range slices.Concat(list.Prompts, list.Resources, list.Templates) {
			items = append(items, visible.JSON(item, visible.Words))
		}
		next := ""
		_ = json.Unmarshal(list.Next, &next) // an unreadable cursor ends the list
		switch {
		case next == "":
			return items, ttl, "", nil
		case seen[next]:
			return items, ttl, fmt.Sprintf("the server repeats the cursor %.40q", next), nil
		case len(items) >= maxEntries:
			return items, ttl, fmt.Sprintf("more than %d entries", maxEntries), nil
		case listBytes >= maxListBytes:
			return items, ttl, fmt.Sprintf("more than %d bytes", maxListBytes), nil
		case pages >= maxPages:
			return items, ttl, fmt.Sprintf("more than %d pages", maxPages), nil
		}
		seen[next] = true
		cursor = next
	}
}

// listTools requests the tools and groups. If only groups/list fails, the last groups are used.
func (c *catalogue) listTools(ctx context.Context, cn *conn) (*snapshot, error) {
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
	s := newSnapshot(c, raws, groups, text, cn.protocol.usesHeaders())
	s.rawGroups = groups
	s.wrapTaskTools(cn)
	if err != nil {
		s.skipped = append(s.skipped, Skipped{"*", clip("the server's groups could not be listed: "+visible.Text(err.Error()), maxNameBytes)})
	}
	if cut != "" {
		s.skipped = append(s.skipped, Skipped{"*", "the list was cut: " + cut})
	}
	s.digest = digest(s)
	ttl = cmp.Or(c.cfg.ListTTL, ttl)
	if (len(s.withheld) > 0 || s.textWithheld) && (ttl == 0 || ttl > retryListAfter) {
		ttl = retryListAfter // the user may accept the change meanwhile
	}
	if ttl > 0 {
		s.expires = time.Now().Add(ttl)
	}
	return s, nil
}

// newSnapshot makes a snapshot of the entries of tools/list and groups/list. Invalid tools are skipped. If overHTTP is
// set, tools with wrong x-mcp-header annotations are skipped too, as the specification requires.
func newSnapshot(c *catalogue, raws, groups []json.RawMessage, text *serverText, overHTTP bool) *snapshot {
	s := &snapshot{}
	var entries []*listEntry
	names := map[string]bool{}
	if len(raws) > maxEntries {
		s.skipped = append(s.skipped, Skipped{"*", fmt.Sprintf("the list was cut: more than %d entries", maxEntries)})
		raws = raws[:maxEntries]
	}
	for i, raw := range raws {
		entry, err := decodeTool(raw, overHTTP)
		if err == nil && names[entry.Name] {
			err = errors.New("the name occurs twice; the first tool is used")
		}
		if err != nil {
			name := cmp.Or(entry.Name, fmt.Sprintf("#%d", i))
			s.skipped = append(s.skipped, Skipped{clip(name, maxNameBytes), err.Error()})
			continue
		}
		names[entry.Name] = true
		if c.cfg.includes(entry.Name) {
			entries = append(entries, entry)
		}
	}
	var textDefinition json.RawMessage
	if c.cfg.Pins != nil {
		textDefinition = text.definition()
	}
	// Tools that Options exclude also have a name, so that excluding a tool does not change the names of the remaining tools.
	modelNames := toolNames(c.cfg.Prefix, slices.Collect(maps.Keys(names)))
	for _, entry := range entries {
		t := newRemoteTool(c, entry, modelNames)
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

// decodeTool decodes and checks an entry of tools/list. The returned entry has the tool's name, if it is readable, even
// if there is an error.
func decodeTool(raw json.RawMessage, overHTTP bool) (*listEntry, error) {
	e := &listEntry{raw: raw}
	if err := strictjson.Unmarshal(raw, e); err != nil {
		var named struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(raw, &named)
		return &listEntry{Name: named.Name}, fmt.Errorf("the definition cannot be read: %w", err)
	}
	if len(raw) > maxToolBytes {
		return e, fmt.Errorf("the definition has %d bytes; %d are allowed", len(raw), maxToolBytes)
	}
	if e.Name == "" || len(e.Name) > maxNameBytes {
		return e, fmt.Errorf("the name is empty or longer than %d bytes", maxNameBytes)
	}
	var err error
	if e.Input, err = inputSchema(e.Input); err != nil {
		return e, err
	}
	if hidesText(e.Input) || hidesText(e.Output) {
		return e, errors.New("a name or a value in a schema has invisible characters, which only a model reads")
	}
	if out := bytes.TrimSpace(e.Output); len(out) == 0 || out[0] != '{' {
		e.Output = nil // a tool is usable without its outputSchema
	} else if err := checkDepth("outputSchema", out); err != nil {
		return e, err
	}
	if overHTTP {
		err = mcp.ValidateParamHeaderAnnotations(&mcp.Tool{Name: e.Name, RawInputSchema: e.Input})
	}
	return e, err
}

// hidesText reports whether names or values in a schema have invisible characters. They must stay as they are, because the
// server compares them; newRemoteTool removes invisible characters from descriptions and titles only.
func hidesText(schema json.RawMessage) bool {
	ascii := !bytes.Contains(schema, []byte(`\u`)) && !slices.ContainsFunc(schema, func(c byte) bool { return c >= utf8.RuneSelf })
	return !ascii && visible.Carries(string(strictjson.Canonical(visible.JSON(schema, visible.Words))))
}

// withoutDialect returns a schema without the name of its dialect ($schema), which can be a tenth of a tool's bytes. No
// model needs the name, and package tool tries the common drafts when it checks arguments.
func withoutDialect(schema json.RawMessage) json.RawMessage {
	const key = "$schema"
	if !bytes.Contains(schema, []byte(key)) {
		return schema
	}
	dec := json.NewDecoder(bytes.NewReader(schema))
	if opening, err := dec.Token(); err != nil || opening != json.Delim('{') {
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

// inputSchema returns the checked schema. A schema that is missing or true is replaced by {"type":"object"}.
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

// checkDepth rejects a schema that is nested too deep for recursive functions.
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
		for _, p := range parts { // with its length, so that ("ab", "c") differs from ("a", "bc")
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

// bestDescription returns the description, or a title or the name if there is none.
func bestDescription(r *listEntry) string {
	for _, s := range []string{r.Description, r.Title, r.Annotations.Title} {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return r.Name
}
