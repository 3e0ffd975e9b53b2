package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A node is a JSON value with the line that it starts in.
type node struct {
	line    int
	members map[string]*node // of an object by name, or of a list by position; nil for other values
}

// parse reads one JSON value. Duplicate keys are an error, since one of them would silently be ignored.
func parse(data []byte) (*node, error) {
	p := &parser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	n, err := p.value("")
	if err == nil {
		if _, endErr := p.dec.Token(); !errors.Is(endErr, io.EOF) {
			err = &Error{Line: p.line(), Text: "unexpected data after the JSON value; remove it"}
		}
	}
	return n, err
}

// maxDepth is the maximum nesting of values; a valid file needs four levels.
const maxDepth = 100

type parser struct {
	data  []byte
	dec   *json.Decoder
	depth int
}

// line returns the line where the last token ends.
func (p *parser) line() int {
	return 1 + bytes.Count(p.data[:p.dec.InputOffset()], []byte("\n"))
}

// token reads a token. Its error is an [*Error].
func (p *parser) token() (json.Token, error) {
	tok, err := p.dec.Token()
	if err == nil {
		return tok, nil
	}
	line := p.line()
	if se, ok := errors.AsType[*json.SyntaxError](err); ok { // the decoder has not moved to the error
		line = 1 + bytes.Count(p.data[:min(int(se.Offset), len(p.data))], []byte("\n"))
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("unexpected end of file")
	}
	return nil, &Error{Line: line, Text: err.Error()}
}

// value parses the value at a path, such as tools[0].group.
func (p *parser) value(path string) (*node, error) {
	tok, err := p.token()
	if err != nil {
		return nil, err
	}
	n := &node{line: p.line()}
	if p.depth++; p.depth > maxDepth {
		return nil, &Error{Line: n.line, Text: fmt.Sprintf("values are nested more than %d deep; flatten them", maxDepth)}
	}
	defer func() { p.depth-- }()
	switch tok {
	case json.Delim('{'):
		n.members = map[string]*node{}
		err = p.object(n, path)
	case json.Delim('['):
		n.members = map[string]*node{}
		for i := 0; p.dec.More() && err == nil; i++ {
			n.members[strconv.Itoa(i)], err = p.value(fmt.Sprintf("%s[%d]", path, i))
		}
		if err == nil {
			_, err = p.token() // the closing bracket
		}
	}
	return n, err
}

// object parses the members of an object into n, and the closing brace.
func (p *parser) object(n *node, path string) error {
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return err
		}
		name := tok.(string) // the decoder rejects other keys
		memberPath := strings.TrimPrefix(path+"."+name, ".")
		if _, ok := n.members[name]; ok {
			return &Error{Line: p.line(), Key: memberPath, Text: "duplicate key; merge the two"}
		}
		if n.members[name], err = p.value(memberPath); err != nil {
			return err
		}
	}
	_, err := p.token()
	return err
}

// errorAt returns the error for the value at the path, or for its nearest ancestor that exists.
func (n *node) errorAt(path []string, text string) *Error {
	e := &Error{Line: n.line, Text: text}
	for _, step := range path {
		if _, err := strconv.Atoi(step); err == nil {
			e.Key += "[" + step + "]"
		} else {
			e.Key = strings.TrimPrefix(e.Key+"."+step, ".")
		}
		if n != nil {
			if n = n.members[step]; n != nil {
				e.Line = n.line
			}
		}
	}
	return e
}
