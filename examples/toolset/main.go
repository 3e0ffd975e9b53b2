// Toolset gives an agent twelve tools over the data of a shop, in three groups that the model opens when it needs
// them. Tools that only read run without a question, changes need approval, and no customer may be deleted.
package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A shop is the data of the tools. It has a lock because the calls of one answer may run in parallel.
type shop struct {
	mu        sync.Mutex
	customers map[string]customer
	orders    map[string]order
	stock     map[string]int
}

type customer struct {
	ID    string `json:"id" jsonschema:"pattern=^c[0-9]+$"`
	Name  string `json:"name"`
	Email string `json:"email,omitempty" jsonschema:"format=email"`
}

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Pieces   int    `json:"pieces"`
	Status   string `json:"status"`
}

type (
	none       struct{}
	idIn       struct{ ID string }
	searchIn   struct{ Text string }
	customerIn struct{ Customer string }
	itemIn     struct{ Item string }
	changeIn   struct {
		Item   string
		Pieces int `jsonschema:"minimum=1,maximum=1000"`
	}
	orderIn struct {
		Customer, Item string
		Pieces         int `jsonschema:"minimum=1,maximum=100"`
	}
)

// Customers.

func (s *shop) findCustomers(_ context.Context, in searchIn) ([]customer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []customer
	for _, id := range slices.Sorted(maps.Keys(s.customers)) {
		if c := s.customers[id]; strings.Contains(strings.ToLower(c.Name), strings.ToLower(in.Text)) {
			found = append(found, c)
		}
	}
	return found, nil
}

func (s *shop) getCustomer(_ context.Context, in idIn) (customer, error) {
	return get(s, s.customers, "customer", in.ID)
}

func (s *shop) putCustomer(_ context.Context, in customer) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.customers[in.ID] = in
	return "saved", nil
}

func (s *shop) deleteCustomer(_ context.Context, in idIn) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.customers, in.ID)
	return "deleted", nil
}

// Orders.

func (s *shop) listOrders(_ context.Context, in customerIn) ([]order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []order
	for _, id := range slices.Sorted(maps.Keys(s.orders)) {
		if s.orders[id].Customer == in.Customer {
			list = append(list, s.orders[id])
		}
	}
	return list, nil
}

func (s *shop) getOrder(_ context.Context, in idIn) (order, error) {
	return get(s, s.orders, "order", in.ID)
}

func (s *shop) placeOrder(_ context.Context, in orderIn) (order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stock[in.Item] < in.Pieces {
		return order{}, fmt.Errorf("there are only %d pieces of %q, not %d", s.stock[in.Item], in.Item, in.Pieces)
	}
	s.stock[in.Item] -= in.Pieces
	o := order{fmt.Sprintf("o%d", len(s.orders)+1), in.Customer, in.Item, in.Pieces, "placed"}
	s.orders[o.ID] = o
	return o, nil
}

func (s *shop) cancelOrder(_ context.Context, in idIn) (order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.orders[in.ID]
	if !ok || o.Status != "placed" {
		return o, fmt.Errorf("order %q cannot be cancelled; list_orders shows the orders that can", in.ID)
	}
	o.Status = "cancelled"
	s.orders[o.ID] = o
	s.stock[o.Item] += o.Pieces
	return o, nil
}

// Stock.

func (s *shop) listStock(context.Context, none) (map[string]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.stock), nil
}

func (s *shop) countStock(_ context.Context, in itemIn) (int, error) {
	return get(s, s.stock, "item", in.Item)
}

func (s *shop) receiveStock(_ context.Context, in changeIn) (int, error) {
	return s.change(in.Item, in.Pieces)
}

func (s *shop) removeStock(_ context.Context, in changeIn) (int, error) {
	return s.change(in.Item, -in.Pieces)
}

func (s *shop) change(item string, by int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stock[item]+by < 0 {
		return s.stock[item], fmt.Errorf("there are only %d pieces of %q", s.stock[item], item)
	}
	s.stock[item] += by
	return s.stock[item], nil
}

func get[V any](s *shop, from map[string]V, kind, id string) (V, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := from[id]
	if !ok {
		return v, fmt.Errorf("there is no %s %q", kind, id)
	}
	return v, nil
}

// groups returns the tools of the shop.
func (s *shop) groups() []toolkit.Group {
	reads := tool.Options{ReadOnly: true, Parallel: true}
	return []toolkit.Group{
		{Name: "customers", Description: "Who buys: find, look up and change customers.", Tools: []tool.Tool{
			tool.Must(tool.New("find_customers", "Finds customers by a part of their name.", s.findCustomers, reads)),
			tool.Must(tool.New("get_customer", "Returns a customer.", s.getCustomer, reads)),
			tool.Must(tool.New("put_customer", "Adds a customer, or changes one.", s.putCustomer)),
			tool.Must(tool.New("delete_customer", "Deletes a customer.", s.deleteCustomer)),
		}},
		{Name: "orders", Description: "What was bought: list, place and cancel orders.", Instructions: "Look at the stock before you place an order.", Tools: []tool.Tool{
			tool.Must(tool.New("list_orders", "Lists the orders of a customer.", s.listOrders, reads)),
			tool.Must(tool.New("get_order", "Returns an order.", s.getOrder, reads)),
			tool.Must(tool.New("place_order", "Places an order.", s.placeOrder)),
			tool.Must(tool.New("cancel_order", "Cancels an order that was placed.", s.cancelOrder)),
		}},
		{Name: "stock", Description: "What can be bought: count, receive and remove pieces.", Tools: []tool.Tool{
			tool.Must(tool.New("list_stock", "Lists all items, and how many pieces there are.", s.listStock, reads)),
			tool.Must(tool.New("count_stock", "Counts the pieces of an item.", s.countStock, reads)),
			tool.Must(tool.New("receive_stock", "Adds pieces of an item.", s.receiveStock)),
			tool.Must(tool.New("remove_stock", "Removes pieces of an item.", s.removeStock)),
		}},
	}
}

func main() {
	s := &shop{
		customers: map[string]customer{"c1": {ID: "c1", Name: "Ada Byron"}, "c2": {ID: "c2", Name: "Alan Mathison"}},
		orders:    map[string]order{},
		stock:     map[string]int{"lamp": 5, "chair": 2},
	}
	kit, err := toolkit.New(toolkit.Config{Groups: s.groups()})
	if err != nil {
		log.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Model: scripted.New(
			scripted.Call("reset_tools", map[string]bool{"customers": true, "orders": true, "stock": true}),
			scripted.Call("find_customers", searchIn{"ada"}),
			scripted.Call("count_stock", itemIn{"lamp"}),
			scripted.Call("place_order", orderIn{"c1", "lamp", 2}),
			scripted.Call("delete_customer", idIn{"c2"}),
			scripted.Say("Ada's two lamps are ordered. I may not delete customers."),
		),
		Toolkit: kit,
		Policy: permission.Policy{TrustReadOnly: true, Rules: []permission.Rule{
			{Tool: "delete_*", Behavior: permission.Deny},
		}},
		Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
			fmt.Printf("may %s run with %s? yes\n", q.Name, q.Input)
			return q.Allow(), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for ev, err := range a.Run(context.Background(), &agent.State{}, agent.Say("Order two lamps for Ada, and delete Alan.")) {
		if err != nil {
			log.Fatal(err)
		}
		switch ev := ev.(type) {
		case *event.ModelStart:
			fmt.Printf("step %d: the model sees %d tools\n", ev.Step, ev.Tools)
		case *event.ToolResult:
			text, _, _ := strings.Cut(ev.Text, "\n")
			fmt.Printf("  %s %s: %s\n", ev.Name, ev.Outcome, text)
		case *event.End:
			fmt.Println(ev.Text)
		}
	}
}
