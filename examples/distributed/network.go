package main

import (
	"net"
	"sync"
)

// A network passes connections on to a server until it is cut: then they hang, and end when it is joined again.
type network struct {
	ln     net.Listener
	server string

	mu    sync.Mutex
	conns map[net.Conn]bool
	open  *sync.Cond // when it is not cut
	isCut bool
}

func newNetwork(kind, address, server string) (*network, error) {
	ln, err := net.Listen(kind, address)
	if err != nil {
		return nil, err
	}
	n := &network{ln: ln, server: server, conns: map[net.Conn]bool{}}
	n.open = sync.NewCond(&n.mu)
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
			n.open.Wait()
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

// cut cuts the network, or joins it again; then the connections that were cut end.
func (n *network) cut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut = cut; !cut {
		for c := range n.conns {
			_ = c.Close()
		}
		n.open.Broadcast()
	}
}

func (n *network) close() { _ = n.ln.Close() }
