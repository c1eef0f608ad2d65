package growth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench"
)

// Results are the measurements in bench/compare/growth.json. The tables and the picture in documents are made from it.
type Results struct {
	Reviews *Reviews  `json:"reviews,omitempty"` // of make compare
	Cluster []Cluster `json:"cluster,omitempty"` // of make compare-cluster
}

// A Run says when, of what and where something was measured.
type Run struct {
	Date    string        `json:"date"`
	Commit  string        `json:"commit"`
	Machine bench.Machine `json:"machine"`
}

// Reviews are what fastadmit needs for a review of the recorded Pod.
type Reviews struct {
	Run
	CPUs string   `json:"processors"` // which processors the generator and the servers use
	Rows []Review `json:"works"`
}

// A Review is the processor time of a review, in microseconds, and the memory of the process.
type Review struct {
	Work     string       `json:"work"`
	Number   int          `json:"number"`
	CPU      bench.Spread `json:"cpu"`
	Resident bench.Spread `json:"residentBytes"`
}

// A Cluster is what creates of the recorded Pod cost with a release of kube-apiserver and a work.
type Cluster struct {
	Run
	Release string   `json:"release"` // such as 1.37
	Work    string   `json:"work"`
	Rows    []Create `json:"rows"`
}

// Who evaluates the policies.
const (
	Nobody     = "no policies"
	InTree     = "in-tree"
	Fastadmit  = "fastadmit"
	Gatekeeper = "Gatekeeper v3.23.1"
)

// Evaluators are those who evaluate policies, in the order of tables.
func Evaluators() []string { return []string{Nobody, InTree, Fastadmit, Gatekeeper} }

// Find returns the cost with a number of policies, nil if there is none.
func (c *Cluster) Find(by string, number int) *Create {
	at := slices.IndexFunc(c.Rows, func(row Create) bool { return row.By == by && row.Number == number })
	if at < 0 {
		return nil
	}
	return &c.Rows[at]
}

// A Create is the cost of a create, a dry run. Times are in microseconds.
type Create struct {
	By     string `json:"by"`
	Number int    `json:"number"`
	// Missing says why it was not measured. Then all following fields are zero.
	Missing string `json:"missing,omitempty"`
	Pods    int    `json:"pods"` // that were created in all rounds
	// Server and Webhook are processor time of kube-apiserver and of the webhook. Added is what both need in a round more than
	// kube-apiserver without policies.
	Server  bench.Spread `json:"server"`
	Webhook bench.Spread `json:"webhook"`
	Added   bench.Spread `json:"added"`
	P50     float64      `json:"p50"`
	P99     float64      `json:"p99"`
}

// NewRun describes a run that begins now, in a clone of the repository.
func NewRun(ctx context.Context) Run {
	return Run{Date: time.Now().UTC().Format(time.DateOnly), Commit: commit(ctx), Machine: bench.ThisMachine()}
}

// commit returns the commit that is measured, "" outside of a clone.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Read reads the results. A file that does not exist has none.
func Read(file string) (*Results, error) {
	r := new(Results)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(content, r)
}

// Write writes the results.
func (r *Results) Write(file string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}

// Find returns what was measured with a release and work, nil if nothing was.
func (r *Results) Find(release, work string) *Cluster {
	at := slices.IndexFunc(r.Cluster, func(c Cluster) bool { return c.Release == release && c.Work == work })
	if at < 0 {
		return nil
	}
	return &r.Cluster[at]
}

// Put replaces what was measured with the same release and work.
func (r *Results) Put(c Cluster) {
	if old := r.Find(c.Release, c.Work); old != nil {
		*old = c
		return
	}
	r.Cluster = append(r.Cluster, c)
	place := func(name string) int { return slices.IndexFunc(Works(), func(w Work) bool { return w.Name == name }) }
	slices.SortFunc(r.Cluster, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(place(a.Work), place(b.Work)), cmp.Compare(a.Release, b.Release))
	})
}
