package distributed

import (
	"net"
	"sync"
)

// A network forwards connections to a server. While it is cut they hang, and when it is restored they end.
type network struct {
	ln     net.Listener
	server string

	mu       sync.Mutex
	conns    map[net.Conn]bool
	restored *sync.Cond
	isCut    bool
}

func newNetwork(kind, address, server string) (*network, error) {
	ln, err := net.Listen(kind, address)
	if err != nil {
		return nil, err
	}
	n := &network{ln: ln, server: server, conns: map[net.Conn]bool{}}
	n.restored = sync.NewCond(&n.mu)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go n.serve(conn)
		}
	}()
	return n, nil
}

func (n *network) serve(client net.Conn) {
	server, err := net.Dial(n.ln.Addr().Network(), n.server)
	if err != nil {
		_ = client.Close()
		return
	}
	n.mu.Lock()
	n.conns[client], n.conns[server] = true, true
	n.mu.Unlock()
	go n.copy(client, server)
	n.copy(server, client)
}

func (n *network) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		k, err := from.Read(buf)
		n.mu.Lock()
		for n.isCut {
			n.restored.Wait()
		}
		n.mu.Unlock()
		if err == nil {
			_, err = to.Write(buf[:k])
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			n.mu.Lock()
			delete(n.conns, to)
			delete(n.conns, from)
			n.mu.Unlock()
			return
		}
	}
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
}

// restore ends a cut, and the connections.
func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = false
	for c := range n.conns {
		_ = c.Close()
	}
	n.restored.Broadcast()
}

func (n *network) close() { _ = n.ln.Close() }
