// Command demo demonstrates fastadmit. It starts the binary, sends all recorded reviews
// over HTTPS as kube-apiserver does (first to /mutate, then the patched object to
// /validate), and prints the decisions and the latencies.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fastadmit/fastadmit/bench/process"
	"github.com/fastadmit/fastadmit/corpus"
)

// timedRounds is how often the recordings are replayed for the latency line.
const timedRounds = 20

// enabled are the in-tree plugins that need no cluster, except AlwaysAdmit and AlwaysDeny.
var enabled = []string{
	"SecurityContextDeny", "LimitPodHardAntiAffinityTopology", "AlwaysPullImages", "DefaultTolerationSeconds",
	"EventRateLimit", "ExtendedResourceToleration", "StorageObjectInUseProtection", "DenyServiceExternalIPs",
}

// admissionConfiguration allows a burst of two events in each namespace, so that the demo shows
// some denials.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Namespace, qps: 1, burst: 2}
`

func main() {
	binary := flag.String("binary", "bin/fastadmit", "the fastadmit to start")
	flag.Parse()
	if err := run(*binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(binary string) error {
	dir, err := os.MkdirTemp("", "fastadmit-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, client, err := start(binary, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	if err := show(client); err != nil {
		return err
	}
	if err := measure(client); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return err
	}
	fmt.Println("The server finished what was in flight and exited with 0 on SIGTERM.")
	return nil
}

var fingerprint = regexp.MustCompile(`, .*sha256 ([0-9a-f]{64})`)

// start runs "fastadmit serve" on loopback and returns a client of it.
func start(binary, dir string) (*process.Server, *client, error) {
	configFile := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(configFile, []byte(admissionConfiguration), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(binary, "serve",
		"--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
		"--enable-admission-plugins="+strings.Join(enabled, ","),
		"--admission-control-config-file="+configFile)
	fmt.Println("$", strings.ReplaceAll(strings.Join(cmd.Args, " "), dir+"/", ""))
	server, err := process.Start(cmd, filepath.Join(dir, "log"), cmd.Start)
	if err != nil {
		return nil, nil, err
	}
	fmt.Print(server.Ready, "\n\n")
	match := fingerprint.FindStringSubmatch(server.Ready)
	if match == nil {
		server.Kill()
		return nil, nil, fmt.Errorf("got the line %q, want one with the SHA-256 of the certificate", server.Ready)
	}
	client, err := newClient(server.URL, match[1])
	if err != nil {
		server.Kill()
		return nil, nil, err
	}
	return server, client, nil
}

// A row is a line of the table: all reviews of a resource and operation.
type row struct {
	what                     string
	reviews, patched, denied int
	example                  string
}

// show sends every recording once and prints the table of decisions.
func show(client *client) error {
	rows := make(map[string]*row)
	for _, name := range corpus.Names() {
		what, _, _ := strings.Cut(name, "-v1")
		r := rows[what]
		if r == nil {
			r = &row{what: what}
			rows[what] = r
		}
		decision, err := client.admit(context.Background(), corpus.MustRead(name))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.add(decision)
	}
	total, unchanged := row{what: "total"}, row{}
	names := make([]string, 0, len(rows))
	for name, r := range rows {
		total.merge(r)
		if r.patched == 0 && r.denied == 0 {
			unchanged.merge(r)
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	unchanged.what = fmt.Sprintf("%d others, allowed as they are", len(rows)-len(names))
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RECORDED REVIEWS\tSENT\tALLOWED\tPATCHED\tDENIED\tEXAMPLE")
	for _, name := range names {
		rows[name].print(w)
	}
	unchanged.print(w)
	total.print(w)
	if err := w.Flush(); err != nil {
		return err
	}
	if total.patched == 0 || total.denied == 0 || total.denied == total.reviews {
		return fmt.Errorf("got %d reviews, %d patched and %d denied, want some of each, and some allowed",
			total.reviews, total.patched, total.denied)
	}
	return nil
}

func (r *row) merge(other *row) {
	r.reviews += other.reviews
	r.patched += other.patched
	r.denied += other.denied
}

func (r *row) add(d decision) {
	r.reviews++
	switch {
	case !d.allowed:
		r.denied++
		r.example = d.message
	case d.patch != "":
		r.patched++
		if r.denied == 0 {
			r.example = d.patch
		}
	}
}

func (r *row) print(w *tabwriter.Writer) {
	const width = 90
	example := r.example
	if len(example) > width {
		example = example[:width] + "..."
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", r.what, r.reviews, r.reviews-r.denied, r.patched, r.denied, example)
}

// measure replays the recordings on one connection and prints how long the
// answers took.
func measure(client *client) error {
	var took []time.Duration
	begin := time.Now()
	for range timedRounds {
		for _, name := range corpus.Names() {
			start := time.Now()
			if _, err := client.post(context.Background(), "/mutate", corpus.MustRead(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took = append(took, time.Since(start))
		}
	}
	elapsed := time.Since(begin)
	slices.Sort(took)
	at := func(quantile float64) time.Duration { return took[int(quantile*float64(len(took)-1))] }
	fmt.Printf("\n%d mutating calls one after the other in %s: p50 %s, p99 %s, max %s (client, TLS and loopback included)\n",
		len(took), elapsed.Round(time.Millisecond), at(0.5), at(0.99), at(1))
	return nil
}
