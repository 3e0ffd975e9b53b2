package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Blocks is a list of blocks that can be encoded to JSON and decoded.
type Blocks []Block

// MarshalJSON writes each block as its object with a "type" member in front.
func (bs Blocks) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteByte('[')
	for i, b := range bs {
		if i > 0 {
			buf.WriteByte(',')
		}
		if err := encodeBlock(&buf, b); err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
	}
	buf.WriteByte(']')
	return buf.Bytes(), nil
}

func encodeBlock(buf *bytes.Buffer, b Block) error {
	switch b := b.(type) {
	case nil:
		return errors.New("the block is nil")
	case *Unknown:
		return json.Compact(buf, b.Raw)
	}
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	fmt.Fprintf(buf, `{"type":%q`, b.kind())
	if len(body) > len("{}") {
		buf.WriteByte(',')
	}
	buf.Write(body[1:])
	return nil
}

// UnmarshalJSON decodes what MarshalJSON returned. An object of an unknown type becomes an [*Unknown].
func (bs *Blocks) UnmarshalJSON(data []byte) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return err
	}
	out := make(Blocks, len(raws))
	for i, raw := range raws {
		b, err := decodeBlock(raw)
		if err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		out[i] = b
	}
	*bs = out
	return nil
}

// decodeBlock decodes one block from its JSON object.
func decodeBlock(raw json.RawMessage) (Block, error) {
	var tag struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(raw, &tag); err != nil {
		return nil, err
	}
	if tag.Type == nil {
		return nil, fmt.Errorf(`a block has no "type": %.60s`, raw)
	}
	b := newBlock(*tag.Type)
	if b == nil {
		return &Unknown{Type: *tag.Type, Raw: bytes.Clone(raw)}, nil
	}
	if err := json.Unmarshal(raw, b); err != nil {
		return nil, fmt.Errorf("%s: %w", *tag.Type, err)
	}
	return b, nil
}

func newBlock(kind string) Block {
	for _, b := range []Block{&Text{}, &Thinking{}, &Data{}, &Hint{}, &ToolCall{}, &ToolResult{}} {
		if b.kind() == kind {
			return b
		}
	}
	return nil
}
