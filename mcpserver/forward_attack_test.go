package mcpserver_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// behind lets a handler get the requests to a replica.
func (o *oneOf) behind(h func(w http.ResponseWriter, r *http.Request, inner http.Handler)) {
	inner := o.web.Config.Handler
	o.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, inner) })
}

// TestReplicasFrozen forwards requests to a replica whose process then hangs: its connections stay open, and no
// heartbeat follows. A request that it has not read is handled by another replica; for the others the client is told.
func TestReplicasFrozen(t *testing.T) {
	for _, row := range []struct {
		name       string
		read       bool // the replica has read the request
		body, want string
	}{
		{"before it has read a call", false, callWeather, `200 "c":7`},
		{"before it has read a notification", false, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "202 "},
		{"after it has read a call", true, callWeather, "200 may have had effects"},
		{"after it has read a notification", true, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "502 may have had effects"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
			_, direct := c.client("")
			at := c.holder(direct)
			c.freeze(at, row.read)
			direct[1-at].client.Timeout = 20 * time.Second
			direct[1-at].expect(row.body, row.want)
		})
	}
	t.Run("while a stream is open", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
		_, direct := c.client("")
		at := c.holder(direct)
		direct[1-at].client.Timeout = 20 * time.Second
		stream := direct[1-at].back("")
		stream.next() // primes
		c.replicas[at].shared.off.Store(true)
		began := time.Now()
		if stream.rest(); time.Since(began) > 15*time.Second {
			t.Error("the stream of the frozen replica has not ended")
		}
		again := direct[1-at].back("")
		if again.status != 200 {
			t.Errorf("the next stream: %d", again.status)
		}
		again.drop()
	})
}

const callWeather = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"weather"}}`

// freeze stops a replica at its next request, before or after it reads the body.
func (c *cluster) freeze(at int, read bool) {
	end, thaw := context.WithCancel(context.Background())
	c.t.Cleanup(thaw)
	c.replicas[at].behind(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		if read {
			_, _ = io.ReadAll(r.Body)
		}
		c.replicas[at].shared.off.Store(true)
		<-end.Done()
	})
}

// TestReplicasRefused checks what a client gets whose credential the holder of its session does not accept, as it has other
// keys of the issuer: what the holder says to its own clients, which know what to do.
func TestReplicasRefused(t *testing.T) {
	refusals := []*mcpserver.Refusal{nil, nil}
	n := -1
	c := newCluster(t, 2, func() mcpserver.Config {
		n++
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Hosts: []string{"mcp.example.com"}, Authenticator: refusing{&refusals[n]}}
	})
	for _, o := range c.replicas {
		o.behind(func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
			if r.Header.Get("Kitbag-Forwarded") != "" {
				r.Host = "10.0.0.7:8080" // as in a real network
			}
			inner.ServeHTTP(w, r)
		})
	}
	_, direct := c.client("")
	at := c.holder(direct)
	for _, r := range []*mcpserver.Refusal{
		{Status: 401, Challenge: `Bearer error="invalid_token"`, Reason: "expired"},
		{Status: 403, Challenge: `Bearer error="insufficient_scope"`, Reason: "scope"},
		{Status: 503, Reason: "no keys"},
	} {
		refusals[at] = r
		for _, host := range []string{"", "mcp.example.com"} {
			direct[1-at].header = map[string]string{}
			if host != "" {
				direct[1-at].header["Host"] = host
			}
			res, err := direct[1-at].client.Do(direct[1-at].request(t.Context(), listBody))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != r.Status || res.Header.Get("WWW-Authenticate") != r.Challenge || !strings.Contains(string(body), r.Reason) {
				t.Errorf("refused with %+v: %d %q %s", *r, res.StatusCode, res.Header.Get("WWW-Authenticate"), body)
			}
		}
	}
}

type refusing struct{ with **mcpserver.Refusal }

func (r refusing) Authenticate(*http.Request) (mcpserver.Identity, error) {
	if *r.with != nil {
		return mcpserver.Identity{}, *r.with
	}
	return mcpserver.Identity{Name: "anna"}, nil
}

// raw sends the bytes of a request to a replica, and returns the answer.
func (o *oneOf) raw(t *testing.T, request string) (status int, header http.Header, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", o.web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, request) }() // the replica may answer before it has read all
	answer, method := bufio.NewReader(conn), &http.Request{Method: strings.SplitN(request, " ", 2)[0]}
	res, err := http.ReadResponse(answer, method)
	if err == nil && res.StatusCode == http.StatusContinue {
		res, err = http.ReadResponse(answer, method)
	}
	if err != nil {
		return 0, nil, err.Error()
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, res.Header, string(data)
}

// TestReplicasSmuggling sends requests that the two replicas could read in different ways. Through the replica that forwards
// it, each has the same answer as from the one that has the session.
func TestReplicasSmuggling(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Credentials: two(), Hosts: []string{"mcp.example.com"}, Limits: mcpserver.Limits{Request: 4000}}
	})
	w, direct := c.client(tokenA)
	at := c.holder(direct)
	otto, _ := c.client(tokenB)
	const (
		length  = "Content-Length: 46\r\n"
		chunked = "Transfer-Encoding: chunked\r\n"
	)
	session, auth := "Mcp-Session-Id: "+w.session+"\r\n", "Authorization: Bearer "+tokenA+"\r\n"
	const kind = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	all := session + auth + kind
	pieces := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	padded := func(n int) string { return listBody + strings.Repeat(" ", n-len(listBody)) }
	for _, row := range []struct {
		want                      int
		name, line, headers, body string
	}{
		{200, "plain", "POST / HTTP/1.1", all + length, listBody},
		{200, "HTTP/1.0", "POST / HTTP/1.0", all + length, listBody},
		{200, "another path", "POST /.well-known/oauth-protected-resource HTTP/1.1", all + length, listBody},
		{200, "another host in the path", "POST //evil.example.com/x HTTP/1.1", all + length, listBody},
		{200, "an absolute URL", "POST http://mcp.example.com/ HTTP/1.1", all + length, listBody},
		{403, "an absolute URL of another host", "POST http://evil.example.com/ HTTP/1.1", all + length, listBody},
		{200, "a query", "POST /?a=b&c HTTP/1.1", all + length, listBody},
		{200, "a query with semicolons", "POST /?a;b HTTP/1.1", all + length, listBody},
		{200, "a query with a bad escape", "POST /?%zz HTTP/1.1", all + length, listBody},
		{404, "a query for HTTP+SSE", "POST /?sessionId=" + w.session + " HTTP/1.1", all + length, listBody},
		{404, "a query for HTTP+SSE, twice", "POST /?sessionId=x&sessionId=" + w.session + " HTTP/1.1", all + length, listBody},
		{404, "a query for HTTP+SSE, escaped", "POST /?session%49d=" + w.session + " HTTP/1.1", all + length, listBody},
		{200, "a query for HTTP+SSE after a semicolon", "POST /?a;sessionId=" + w.session + " HTTP/1.1", all + length, listBody},
		{403, "an unknown host", "POST / HTTP/1.1", all + "Host: evil.example.com\r\n" + length, listBody},
		{200, "a known host", "POST / HTTP/1.1", all + "Host: mcp.example.com\r\n" + length, listBody},
		{400, "two hosts", "POST / HTTP/1.1", all + "Host: localhost\r\nHost: evil.example.com\r\n" + length, listBody},
		{200, "X-Forwarded-Host", "POST / HTTP/1.1", all + "Host: localhost\r\nX-Forwarded-Host: evil.example.com\r\n" + length, listBody},
		{200, "Forwarded", "POST / HTTP/1.1", all + "Forwarded: for=127.0.0.1;host=evil.example.com\r\n" + length, listBody},
		{403, "an unknown origin", "POST / HTTP/1.1", all + "Origin: https://evil.example.com\r\n" + length, listBody},
		{403, "a known and an unknown origin", "POST / HTTP/1.1", all + "Origin: http://localhost\r\nOrigin: https://evil.example.com\r\n" + length, listBody},
		{401, "no credential", "POST / HTTP/1.1", session + kind + length, listBody},
		{401, "an unknown credential", "POST / HTTP/1.1", session + kind + "Authorization: Bearer x\r\n" + length, listBody},
		{404, "the credential of another", "POST / HTTP/1.1", session + kind + "Authorization: Bearer " + tokenB + "\r\n" + length, listBody},
		{200, "two credentials, the first its own", "POST / HTTP/1.1", session + kind + auth + "Authorization: Bearer " + tokenB + "\r\n" + length, listBody},
		{404, "two credentials, the second its own", "POST / HTTP/1.1", session + kind + "Authorization: Bearer " + tokenB + "\r\n" + auth + length, listBody},
		{401, "Proxy-Authorization", "POST / HTTP/1.1", session + kind + "Proxy-Authorization: Bearer " + tokenA + "\r\n" + length, listBody},
		{200, "a folded credential", "POST / HTTP/1.1", session + kind + "Authorization: Bearer\r\n " + tokenA + "\r\n" + length, listBody},
		{401, "a credential in the query", "POST /?access_token=" + tokenA + " HTTP/1.1", session + kind + length, listBody},
		{400, "no session", "POST / HTTP/1.1", auth + kind + length, listBody},
		{400, "an empty session", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id:\r\n" + length, listBody},
		{404, "the session of another", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + otto.session + "\r\n" + length, listBody},
		{200, "two sessions, the first its own", "POST / HTTP/1.1", all + "Mcp-Session-Id: " + otto.session + "\r\n" + length, listBody},
		{404, "two sessions, the second its own", "POST / HTTP/1.1", "Mcp-Session-Id: " + otto.session + "\r\n" + all + length, listBody},
		{404, "two sessions in one header", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + otto.session + ", " + w.session + "\r\n" + length, listBody},
		{404, "a session with another case", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + strings.ToLower(w.session) + "\r\n" + length, listBody},
		{400, "a session with a NUL", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + w.session + "\x00\r\n" + length, listBody},
		{404, "the key of a session in the store", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + keyOf(w.session) + "\r\n" + length, listBody},
		{404, "a path to the store", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: ../keys\r\n" + length, listBody},
		{404, "a session of 100 KB", "POST / HTTP/1.1", auth + kind + "Mcp-Session-Id: " + strings.Repeat("a", 100_000) + "\r\n" + length, listBody},
		{200, "Connection names the credential", "POST / HTTP/1.1", all + "Connection: authorization\r\n" + length, listBody},
		{200, "Connection names the session", "POST / HTTP/1.1", all + "Connection: close, Mcp-Session-Id\r\n" + length, listBody},
		{200, "Connection names the pass", "POST / HTTP/1.1", all + "Connection: Kitbag-Forwarded\r\n" + length, listBody},
		{200, "Connection names the length", "POST / HTTP/1.1", all + "Connection: Content-Length, Transfer-Encoding\r\n" + length, listBody},
		{200, "Connection names Expect", "POST / HTTP/1.1", all + "Connection: Expect\r\n" + length, listBody},
		{200, "Keep-Alive", "POST / HTTP/1.1", all + "Keep-Alive: timeout=1\r\nConnection: Keep-Alive\r\n" + length, listBody},
		{200, "Proxy-Connection", "POST / HTTP/1.1", all + "Proxy-Connection: keep-alive\r\n" + length, listBody},
		{200, "Upgrade", "POST / HTTP/1.1", all + "Connection: Upgrade\r\nUpgrade: websocket\r\n" + length, listBody},
		{200, "Upgrade to HTTP/2", "POST / HTTP/1.1", all + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n" + length, listBody},
		{200, "Te", "POST / HTTP/1.1", all + "Te: trailers, deflate\r\n" + length, listBody},
		{200, "Expect of the client", "POST / HTTP/1.1", all + "Expect: 100-continue\r\n" + length, listBody},
		{417, "an unknown Expect", "POST / HTTP/1.1", all + "Expect: 200-ok\r\n" + length, listBody},
		{200, "Max-Forwards", "POST / HTTP/1.1", all + "Max-Forwards: 0\r\n" + length, listBody},
		{200, "Content-Encoding", "POST / HTTP/1.1", all + "Content-Encoding: gzip\r\n" + length, listBody},
		{415, "no type", "POST / HTTP/1.1", session + auth + length, listBody},
		{415, "a type and another", "POST / HTTP/1.1", session + auth + "Content-Type: text/plain\r\n" + kind + length, listBody},
		{200, "accepts nothing", "POST / HTTP/1.1", session + auth + "Content-Type: application/json\r\n" + length, listBody},
		{400, "an unknown revision", "POST / HTTP/1.1", all + "Mcp-Protocol-Version: 1999-01-01\r\n" + length, listBody},
		{400, "a revision without sessions", "POST / HTTP/1.1", all + "Mcp-Protocol-Version: 2026-07-28\r\n" + length, listBody},
		{200, "two revisions", "POST / HTTP/1.1", all + "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Protocol-Version: 2026-07-28\r\n" + length, listBody},
		{200, "another method in a header", "POST / HTTP/1.1", all + "X-HTTP-Method-Override: DELETE\r\n" + length, listBody},
		{200, "a pass with underscores", "POST / HTTP/1.1", all + "Kitbag_Forwarded: x\r\n" + length, listBody},
		{400, "a pass with a space", "POST / HTTP/1.1", all + "Kitbag-Forwarded : x\r\n" + length, listBody},
		{403, "a pass in another case", "POST / HTTP/1.1", all + "kITBAG-fORWARDED: x\r\n" + length, listBody},
		{403, "an empty pass", "POST / HTTP/1.1", all + "Kitbag-Forwarded:\r\n" + length, listBody},
		{403, "an empty pass and another", "POST / HTTP/1.1", all + "Kitbag-Forwarded:\r\nKitbag-Forwarded: x\r\n" + length, listBody},
		{200, "a pass as a trailer", "POST / HTTP/1.1", all + "Trailer: Kitbag-Forwarded\r\n" + chunked, fmt.Sprintf("%x\r\n%s\r\n0\r\nKitbag-Forwarded: x\r\n\r\n", len(listBody), listBody)},
		{400, "a session as a trailer", "POST / HTTP/1.1", auth + kind + "Trailer: Mcp-Session-Id\r\n" + chunked, fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", len(listBody), listBody, session)},
		{200, "a length and chunks", "POST / HTTP/1.1", all + length + chunked, pieces(listBody)},
		{400, "two lengths", "POST / HTTP/1.1", all + length + "Content-Length: 4\r\n", listBody},
		{400, "a signed length", "POST / HTTP/1.1", all + "Content-Length: +46\r\n", listBody},
		{200, "chunks", "POST / HTTP/1.1", all + chunked, pieces(listBody)},
		{200, "chunks with an extension", "POST / HTTP/1.1", all + chunked, fmt.Sprintf("%x;a=b\r\n%s\r\n0\r\n\r\n", len(listBody), listBody)},
		{501, "chunks in an unknown encoding", "POST / HTTP/1.1", all + "Transfer-Encoding: chunked, gzip\r\n", pieces(listBody)},
		{400, "chunks that have a bad size", "POST / HTTP/1.1", all + chunked, "zz\r\n" + listBody},
		{400, "a second request in the body", "POST / HTTP/1.1", all + chunked, pieces(listBody + "0\r\n\r\nDELETE / HTTP/1.1\r\nHost: localhost\r\n" + all + "\r\n")},
		{400, "an empty body", "POST / HTTP/1.1", all + "Content-Length: 0\r\n", ""},
		{200, "the largest body", "POST / HTTP/1.1", all + "Content-Length: 4000\r\n", padded(4000)},
		{200, "the largest body, in chunks", "POST / HTTP/1.1", all + chunked, pieces(padded(4000))},
		{413, "a body that is too large", "POST / HTTP/1.1", all + "Content-Length: 4001\r\n", padded(4001)},
		{413, "a body that is too large, in chunks", "POST / HTTP/1.1", all + chunked, pieces(padded(4001))},
		{413, "a body of 100 MB, said to be", "POST / HTTP/1.1", all + "Content-Length: 100000000\r\n", padded(5000)},
		{400, "two messages", "POST / HTTP/1.1", all + "Content-Length: 94\r\n", "[" + listBody + "," + listBody + " "},
		{202, "an answer to an unknown question", "POST / HTTP/1.1", all + "Content-Length: 56\r\n", `{"jsonrpc":"2.0","id":"ask-1000001","result":{"a":"bc"}}`},
		{200, "an id that looks like an event", "POST / HTTP/1.1", all + "Content-Length: 69\r\n", `{"jsonrpc":"2.0","id":"\n\ndata: {}\n\n","method":"tools/list"}          `},
		{405, "PUT", "PUT / HTTP/1.1", all + length, listBody},
		{405, "CONNECT", "CONNECT localhost:80 HTTP/1.1", all + length, listBody},
		{405, "TRACE", "TRACE / HTTP/1.1", all, ""},
		{200, "OPTIONS of all", "OPTIONS * HTTP/1.1", all, ""},
		{404, "DELETE with the credential of another", "DELETE / HTTP/1.1", session + "Authorization: Bearer " + tokenB + "\r\n", ""},
		{404, "DELETE of the session of another", "DELETE / HTTP/1.1", auth + "Mcp-Session-Id: " + otto.session + "\r\n", ""},
		{400, "DELETE of no session", "DELETE / HTTP/1.1", auth, ""},
		{404, "GET with the credential of another", "GET / HTTP/1.1", session + "Authorization: Bearer " + tokenB + "\r\nAccept: text/event-stream\r\n", ""},
		{404, "GET of the session of another", "GET / HTTP/1.1", auth + "Accept: text/event-stream\r\nMcp-Session-Id: " + otto.session + "\r\n", ""},
		{400, "GET of an unknown event", "GET / HTTP/1.1", all + "Last-Event-ID: ../1\r\n", ""},
		{400, "GET of an unknown event, with a body", "GET / HTTP/1.1", all + "Last-Event-ID: x\r\n" + length, listBody},
		{400, "GET of an unknown event, with endless chunks", "GET / HTTP/1.1", all + "Last-Event-ID: x\r\n" + chunked, strings.Repeat("400\r\n"+strings.Repeat("a", 1024)+"\r\n", 2000)},
	} {
		if !strings.Contains(row.headers, "Host:") {
			row.headers = "Host: localhost\r\n" + row.headers
		}
		request := row.line + "\r\n" + row.headers + "\r\n" + row.body
		var status [2]int
		var body [2]string
		for i, o := range c.replicas {
			status[i], _, body[i] = o.raw(t, request)
		}
		if status != [2]int{row.want, row.want} || body[at] != body[1-at] {
			t.Errorf("%s: %d %q, forwarded %d %q, want %d", row.name, status[at], body[at], status[1-at], body[1-at], row.want)
		}
		for i, mine := range direct { // neither session has ended
			mine.expect(listBody, `200 "weather"`)
			theirs := newWire(t, c.replicas[i].web.URL)
			theirs.token, theirs.session = tokenB, otto.session
			theirs.expect(listBody, `200 "weather"`)
		}
	}
}

// keyOf is the part of a key of the store that belongs to a session.
func keyOf(session string) string {
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:])
}

// TestReplicasPasses sends requests with passes of several kinds to both replicas, as a client from outside, or a replica that
// has been taken over, would do. A pass gives no one the session of another.
func TestReplicasPasses(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: asking(new(atomic.Int64), nil), Policy: open, Credentials: two()}
	})
	_, direct := c.client(tokenA)
	at := c.holder(direct)
	holder, other := c.replicas[at], c.replicas[1-at]
	var members map[string]struct{ URL string }
	raw, err := holder.shared.Get(t.Context(), "replicas")
	if err = errors.Join(err, json.Unmarshal(raw, &members)); err != nil {
		t.Fatal(err)
	}
	id := map[*oneOf]string{}
	for name, m := range members {
		for _, o := range c.replicas {
			if m.URL == o.web.URL+"/" {
				id[o] = name
			}
		}
	}
	seal := func(store mcpserver.Shared, purpose string, v any) string {
		sealed, err := replica.NewKeys(store).Seal(t.Context(), purpose, v)
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	nonce := 0
	pass := func(to string, ttl time.Duration) string {
		nonce++
		return seal(holder.shared, "forward", map[string]any{"to": to, "nonce": fmt.Sprint(nonce), "expires": time.Now().Add(ttl).Unix()})
	}
	used := pass(id[holder], time.Minute)
	ticket := newModern(t, holder.web.URL, tokenA, `{"elicitation":{}}`).asked("tools/call", "greet", "")
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	do := func(o *oneOf, method, token, pass string) (int, string) {
		body, length := list, fmt.Sprintf("Content-Length: %d\r\n", len(list))
		if method != http.MethodPost {
			body, length = "", ""
		}
		status, _, got := o.raw(t, method+" / HTTP/1.1\r\nHost: evil.example.com\r\nOrigin: https://evil.example.com\r\nAuthorization: Bearer "+token+"\r\nMcp-Session-Id: "+direct[0].session+
			"\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"+length+pass+"\r\n"+body)
		return status, got
	}
	header := func(pass string) string { return "Kitbag-Forwarded: " + pass + "\r\n" }
	for _, row := range []struct {
		name   string
		o      *oneOf
		method string
		token  string
		pass   string
		want   int
	}{
		{"none, from an unknown host", holder, "POST", tokenA, "", 403},
		{"for this replica", holder, "POST", tokenA, header(used), 200},
		{"used", holder, "POST", tokenA, header(used), 403},
		{"used, by another credential", holder, "POST", tokenB, header(used), 403},
		{"used, at the other replica", other, "POST", tokenA, header(used), 421},
		{"for the other replica", holder, "POST", tokenA, header(pass(id[other], time.Minute)), 421},
		{"for no replica", holder, "POST", tokenA, header(pass("", time.Minute)), 421},
		{"for the replica that does not have the session", other, "POST", tokenA, header(pass(id[other], time.Minute)), 421},
		{"for this replica, of another credential", holder, "POST", tokenB, header(pass(id[holder], time.Minute)), 404},
		{"for this replica, of another credential, to end the session", holder, "DELETE", tokenB, header(pass(id[holder], time.Minute)), 404},
		{"for this replica, of another credential, to read its stream", holder, "GET", tokenB, header(pass(id[holder], time.Minute)), 404},
		{"for this replica, of no credential", holder, "POST", "unknown", header(pass(id[holder], time.Minute)), 401},
		{"expired", holder, "POST", tokenA, header(pass(id[holder], -2*time.Second)), 403},
		{"two", holder, "POST", tokenA, header(pass(id[holder], time.Minute)) + header(pass(id[holder], time.Minute)), 403},
		{"made up", holder, "POST", tokenA, header("abc"), 403},
		{"changed", holder, "POST", tokenA, header(used[:len(used)-2] + "AA"), 403},
		{"cut", holder, "POST", tokenA, header(used[:20]), 403},
		{"that names no key", holder, "POST", tokenA, header(strings.Repeat("A", len(used))), 403},
		{"of another deployment", holder, "POST", tokenA, header(seal(mcpserver.NewShared(), "forward", map[string]any{"to": id[holder], "nonce": "x", "expires": 1 << 40})), 403},
		{"for another purpose", holder, "POST", tokenA, header(seal(holder.shared, "ticket", map[string]any{"to": id[holder], "nonce": "x", "expires": 1 << 40})), 403},
		{"a ticket", holder, "POST", tokenA, header(ticket), 403},
		{"not an object", holder, "POST", tokenA, header(seal(holder.shared, "forward", "x")), 403},
	} {
		if status, got := do(row.o, row.method, row.token, row.pass); status != row.want || status >= 400 && strings.Contains(got, "tools") {
			t.Errorf("a pass: %s: %d %q, want %d", row.name, status, got, row.want)
		}
	}
	good := header(pass(id[holder], time.Minute))
	var work sync.WaitGroup
	var accepted atomic.Int64
	for range 20 {
		work.Go(func() {
			if status, _ := do(holder, "POST", tokenA, good); status == 200 {
				accepted.Add(1)
			}
		})
	}
	if work.Wait(); accepted.Load() != 1 {
		t.Errorf("a pass was good for %d requests", accepted.Load())
	}

	// What is sealed for one purpose is of no use for another.
	m := newModern(t, other.web.URL, tokenA, `{"elicitation":{}}`)
	for _, sealed := range []string{pass(id[holder], time.Minute), seal(holder.shared, "forward", map[string]any{"parked": id[holder], "nonce": "1"})} {
		if status, got := m.send(t.Context(), "tools/call", "greet", `,"requestState":"`+sealed+`"`); status != 400 {
			t.Errorf("a pass as a ticket: %d %s", status, got)
		}
		if status, _ := do(other, "POST", sealed, ""); status != 403 { // and not 401, because of the host
			t.Errorf("a pass as a token: %d", status)
		}
	}
	for name, tk := range map[string]map[string]any{
		"of a replica that does not exist": {"parked": "nobody", "nonce": "1", "expires": 1 << 40},
		"of an unknown call":               {"parked": id[holder], "nonce": "1", "expires": 1 << 40},
		"of this replica":                  {"parked": id[other], "nonce": "1", "expires": 1 << 40},
		"that expired long ago":            {"parked": id[holder], "nonce": "1", "expires": 1},
		"for a call that has not started":  {"nonce": "1", "expires": 1 << 40},
	} {
		status, got := m.send(t.Context(), "tools/call", "greet", `,"inputResponses":{"who":{"action":"accept","content":{"name":"Eve"}}},"requestState":"`+seal(holder.shared, "ticket", tk)+`"`)
		if strings.Contains(got, "Eve") && name != "for a call that has not started" || status != 400 && name != "for a call that has not started" {
			t.Errorf("a ticket %s: %d %s", name, status, got)
		}
	}
	for _, o := range c.replicas { // the ticket of anna's call is for her, that call and one answer
		for _, row := range []struct{ token, tool, with string }{{tokenB, "greet", ""}, {tokenA, "think", ""}, {tokenA, "greet", `,"arguments":{"x":1}`}} {
			status, got := newModern(t, o.web.URL, row.token, `{"elicitation":{},"sampling":{}}`).send(t.Context(), "tools/call", row.tool,
				row.with+`,"inputResponses":{"who":{"action":"accept","content":{"name":"Eve"}}},"requestState":"`+ticket+`"`)
			if status != 400 || strings.Contains(got, "Eve") {
				t.Errorf("anna's ticket with %+v: %d %s", row, status, got)
			}
		}
	}
	answered := 0
	for _, o := range c.replicas {
		for range 2 {
			_, got := newModern(t, o.web.URL, tokenA, `{"elicitation":{}}`).send(t.Context(), "tools/call", "greet", `,"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+ticket+`"`)
			answered += strings.Count(got, "accept Ada")
		}
	}
	if answered != 1 {
		t.Errorf("a ticket was good for %d answers", answered)
	}
}

// TestReplicasRotation changes the keys while a question is open and sessions are in use.
func TestReplicasRotation(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: asking(new(atomic.Int64), nil), Policy: open, Credentials: two()}
	})
	_, direct := c.client(tokenA)
	store := c.replicas[0].shared
	m := []*modern{newModern(t, c.replicas[0].web.URL, tokenA, `{"elicitation":{}}`), newModern(t, c.replicas[1].web.URL, tokenA, `{"elicitation":{}}`)}
	// rotate adds a key, and keeps the newest n of those before it.
	rotate := func(n int) {
		raw, err := store.Get(t.Context(), "keys")
		var keys []map[string]any
		if err = errors.Join(err, json.Unmarshal(raw, &keys)); err != nil {
			t.Fatal(err)
		}
		secret := sha256.Sum256(raw)
		keys = append([]map[string]any{{"secret": secret[:], "id": secret[:4], "made": time.Now().Unix()}}, keys[:n]...)
		changed, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := store.Swap(t.Context(), "keys", raw, changed, time.Hour); !ok || err != nil {
			t.Fatal(ok, err)
		}
		sealed, err := replica.NewKeys(store).Seal(t.Context(), "forward", map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range direct { // both learn of the new key
			d.header = map[string]string{"Kitbag-Forwarded": sealed}
			d.expect(listBody, "403 ")
			d.header = nil
		}
	}
	answer := func(state string) (int, string) {
		return m[1].send(t.Context(), "tools/call", "greet", `,"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+state+`"`)
	}
	first, second := m[0].asked("tools/call", "greet", ""), m[0].asked("tools/call", "greet", "")
	rotate(1)
	if status, got := answer(first); status != 200 || !strings.Contains(got, "accept Ada") {
		t.Errorf("after a rotation: %d %s", status, got)
	}
	rotate(0)
	if status, got := answer(second); status != 400 || !strings.Contains(got, "not from this server") {
		t.Errorf("with a key that is gone: %d %s", status, got)
	}
	for range 3 {
		for _, d := range direct {
			d.expect(listBody, `200 "greet"`)
		}
	}
	if status, got := answer(m[0].asked("tools/call", "greet", "")); status != 200 || !strings.Contains(got, "accept Ada") {
		t.Errorf("with the new key: %d %s", status, got)
	}
}

// TestReplicasHostile lets the replica that has a session, or another program at its address, answer badly. Its client is told
// in time, and others notice nothing.
func TestReplicasHostile(t *testing.T) {
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, row := range []struct{ name, answer, want string }{
		{"nothing", "", "200 may have had effects"},
		{"another protocol", "SSH-2.0-OpenSSH_9.9\r\n", "200 may have had effects"},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-", "200 may have had effects"},
		{"a header of 11 MB", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("a", 1<<20)+"\r\n", 11), "200 may have had effects"},
		{"another protocol to switch to", "HTTP/1.1 101 Switching Protocols\r\n\r\nraw", "200 may have had effects"},
		{"websocket", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw", "200 may have had effects"},
		{"many early answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", 100_000), "200 may have had effects"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "200 may have had effects"},
		{"an unknown encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, x\r\n\r\nab", "200 may have had effects"},
		{"a body that is cut", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", "200 {"},
		{"a stream without events", events, "200 may have had effects"},
		{"a stream that ends after an event", events + "a\r\ndata: {}\n\n\r\n", "200 may have had effects"},
		{"a stream that ends in an event", events + "7\r\ndata: {\r\n", "200 "},
		{"an answer to another request after its own", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen", "200 {}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
			_, direct := c.client("")
			at := c.holder(direct)
			c.replicas[at].behind(func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
				if r.Header.Get("Mcp-Session-Id") != direct[0].session {
					inner.ServeHTTP(w, r)
					return
				}
				_, _ = io.ReadAll(r.Body)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, row.answer)
				_ = conn.(*arrivals).Conn.(*net.TCPConn).CloseWrite() // a reset could discard the answer
				_, _ = io.Copy(io.Discard, conn)
			})
			other := newWire(t, c.replicas[at].web.URL)
			other.initialize(`{}`)
			other.url = direct[1-at].url
			direct[1-at].client.Timeout = 20 * time.Second
			for range 2 {
				direct[1-at].expect(callWeather, row.want)
				other.expect(listBody, `200 "weather"`)
			}
		})
	}
}
