// Command server runs a Temporal server for tests: one process with a SQLite database in a file, so that it can be
// killed and started again. It prints its process id when it is ready, and exits at the end of standard input.
//
// It is a separate module and not in go.work, because the server's hundreds of dependencies would determine
// versions for the whole workspace.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	tlog "go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	schema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	host        = "127.0.0.1"
	clusterName = "active"
)

func main() {
	file := flag.String("db", "", "the database's `file`")
	port := flag.Int("port", 0, "the `port` of the frontend, on the loopback interface")
	namespace := flag.String("namespace", "default", "the `name` of the namespace of a new database")
	flag.Parse()
	if err := serve(*file, *port, *namespace); err != nil {
		log.Fatal(err)
	}
}

func serve(file string, port int, namespace string) error {
	db := &config.SQL{PluginName: sqlite.PluginName, DatabaseName: file, ConnectAttributes: map[string]string{
		"mode": "rwc", "journal_mode": "wal", "synchronous": "off"}} // it need not survive a loss of power
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := schema.SetupSchema(db); err != nil {
			return err
		}
		ns, err := schema.NewNamespaceConfig(clusterName, namespace, false, nil)
		if err == nil {
			err = schema.CreateNamespaces(db, ns)
		}
		if err != nil {
			return err
		}
	}
	cfg, err := configuration(db, port)
	if err != nil {
		return err
	}
	server, err := temporal.NewServer(temporal.WithConfig(cfg), temporal.ForServices(temporal.DefaultServices), temporal.WithLogger(tlog.NewNoopLogger()),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			// As in Temporal's development server: with the cache, a new search attribute is unknown for some time.
			dynamicconfig.MakeKey("system.forceSearchAttributesCacheRefreshOnRead"): true,
		}))
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	fmt.Println("ready", os.Getpid())
	_, err = io.Copy(io.Discard, os.Stdin) // then exit: server.Stop would take ten seconds
	return err
}

// configuration returns the configuration of a server with all its services in one process. After a restart the
// services have the same ports, because the database lists the services at the old ports as alive for a minute.
func configuration(db *config.SQL, port int) (*config.Config, error) {
	ports, err := savedPorts(db.DatabaseName + ".ports")
	if err != nil {
		return nil, err
	}
	ports[0] = port
	services := map[string]config.Service{}
	for i, name := range []string{"frontend", "history", "matching", "worker"} {
		services[name] = config.Service{RPC: config.RPC{GRPCPort: ports[2*i], MembershipPort: ports[2*i+1], BindOnLocalHost: true}}
	}
	address := fmt.Sprintf("%s:%d", host, port)
	return &config.Config{
		Global: config.Global{Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: host}},
		Persistence: config.Persistence{DefaultStore: sqlite.PluginName, VisibilityStore: sqlite.PluginName, NumHistoryShards: 4,
			DataStores: map[string]config.DataStore{sqlite.PluginName: {SQL: db}}},
		ClusterMetadata: &cluster.Config{FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address}}},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{History: config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"}},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"}}},
		PublicClient: config.PublicClient{HostPort: address},
	}, nil
}

// savedPorts returns the ports in a file. It creates a missing file, with ports that are free.
func savedPorts(file string) (ports [8]int, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &ports)
		return ports, err
	}
	for i := range ports {
		ln, err := net.Listen("tcp", host+":0")
		if err != nil {
			return ports, err
		}
		defer ln.Close() // when all ports are found, so that they differ
		ports[i] = ln.Addr().(*net.TCPAddr).Port
	}
	if data, err = json.Marshal(ports); err != nil {
		return ports, err
	}
	return ports, os.WriteFile(file, data, 0o600)
}
