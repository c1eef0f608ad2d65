//go:build linux

package handlers_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
)

// BenchmarkPauses measures the processor time of a review, without HTTP and TLS, after the
// processor was idle for a while. It takes longer than in a loop, because the caches of the
// processor are cold.
func BenchmarkPauses(b *testing.B) {
	for name, enabled := range map[string][]string{
		"AlwaysPullImages": {"AlwaysPullImages"},
		"ten": {
			"NamespaceAutoProvision", "NamespaceLifecycle", "AlwaysPullImages", "LimitRanger", "ServiceAccount", "PodNodeSelector",
			"Priority", "DefaultTolerationSeconds", "PodTolerationRestriction", "RuntimeClass",
		},
	} {
		chain := recordedChain(b, enabled)
		for _, pause := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			b.Run(name+"/"+pause.String(), func(b *testing.B) {
				runtime.LockOSThread() // threadTime is that of the thread
				defer runtime.UnlockOSThread()
				var dst []byte
				var took []time.Duration
				body := corpus.MustRead("pods-create-v1-1.json")
				for b.Loop() {
					time.Sleep(pause)
					start := threadTime()
					dst, _ = admissiontest.Respond(b, chain, admission.Mutate, body, dst[:0])
					took = append(took, threadTime()-start)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2])/1e3, "median-µs")
				b.ReportMetric(0, "ns/op") // it would include the pause
			})
		}
	}
}

// recordedChain returns a chain of these plugins in the cluster of the corpus.
func recordedChain(t testing.TB, names []string) *admission.Chain {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), corpus.Cluster, 0o600); err != nil {
		t.Fatal(err)
	}
	table := slices.DeleteFunc(handlers.InTree(handlers.DefaultOptions()),
		func(p admission.Plugin) bool { return !slices.Contains(names, p.Name) })
	enabled := make(map[string]admission.Enabled)
	var needs []cluster.Need
	for i := range table {
		enabled[table[i].Name] = admission.Enabled{}
		needs = append(needs, table[i].AllNeeds(nil)...)
	}
	state, err := cluster.New(cluster.Options{Dir: dir, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(context.Background(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain(table, enabled, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}
