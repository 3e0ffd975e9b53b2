package mcpclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// A server, or a proxy before it, may repeat the token of a request in its answer, from where it could get into a log or
// to a model.

// minHidden is the length of the shortest token that is hidden: a shorter one could be a word.
const minHidden = 16

func tokenOf(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok && len(token) >= minHidden {
		return token
	}
	return ""
}

// hideToken replaces the token of the request by asterisks in the body of the answer.
func hideToken(res *http.Response, req *http.Request) {
	if token := tokenOf(req); token != "" {
		res.Body = &hidingBody{ReadCloser: res.Body, token: []byte(token)}
	}
}

// withoutToken returns an error that does not contain the token of the request.
func withoutToken(err error, req *http.Request) error {
	if token := tokenOf(req); token != "" && strings.Contains(err.Error(), token) {
		return errors.New(strings.ReplaceAll(err.Error(), token, "*"))
	}
	return err
}

type hidingBody struct {
	io.ReadCloser
	token []byte
	in    [4 << 10]byte
	out   []byte // to be returned
	held  []byte // the end of what was read, if it may be the beginning of the token
	err   error
}

func (b *hidingBody) Read(p []byte) (int, error) {
	for len(b.out) == 0 && b.err == nil {
		var n int
		n, b.err = b.ReadCloser.Read(b.in[:])
		data := bytes.ReplaceAll(append(b.held, b.in[:n]...), b.token, bytes.Repeat([]byte("*"), len(b.token)))
		hold := min(len(data), len(b.token)-1)
		for hold > 0 && (b.err != nil || !bytes.HasSuffix(data, b.token[:hold])) {
			hold--
		}
		b.out, b.held = data[:len(data)-hold], bytes.Clone(data[len(data)-hold:])
	}
	n := copy(p, b.out)
	if b.out = b.out[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, b.err
}
