package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// podText returns the recorded Pod, with names in place of %d.
func podText(t testing.TB) string {
	var review struct {
		Request struct {
			Object map[string]any `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(corpus.MustRead("pods-create-v1-1.json"), &review); err != nil {
		t.Fatal(err)
	}
	metadata := review.Request.Object["metadata"].(map[string]any)
	metadata["name"], metadata["namespace"], metadata["uid"] = "p%07[1]d", "ns0", "u%[1]d"
	text, err := json.Marshal(review.Request.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// serveMany makes a stand list n Pods of a few kilobytes, which it never has in memory. Every hundredth is refused by the
// chain that it returns. Lists of reports have those that were written.
func (s *stand) serveMany(n int) *admission.Chain {
	s.serveReports(openReports, "reports", "clusterreports")
	s.lists["/api/v1/pods"] = nil
	parts := strings.Split(podText(s.t), "%07[1]d")
	last := strings.Split(parts[1], "%[1]d")
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == openReports+"/reports":
			s.listWritten(w)
			return true
		case r.URL.Path != "/api/v1/pods":
			return false
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue")) // "" is 0
		to, token := min(from+limit, n), ""
		if to < n {
			token = strconv.Itoa(to)
		}
		s.mu.Unlock() // reports are written meanwhile
		defer s.mu.Lock()
		out := bufio.NewWriter(w)
		fmt.Fprintf(out, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":%q},"items":[`, token)
		for i := from; i < to; i++ {
			if i > from {
				_ = out.WriteByte(',')
			}
			fmt.Fprintf(out, "%s%07d%s%d%s", parts[0], i, last[0], i, last[1])
		}
		_, _ = out.WriteString("]}")
		_ = out.Flush()
		return true
	}
	return chainOf(s.t, admission.Plugin{
		Name: "Refuses", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(_ context.Context, r *codec.Review) admission.Result {
				if strings.HasSuffix(r.Name(), "00") {
					return admission.Denied(admission.Forbidden(r, errors.New("it is one in a hundred")))
				}
				return admission.Allowed()
			}}, nil
		},
	})
}

// listWritten answers with the reports that were written, and not deleted after that.
func (s *stand) listWritten(w http.ResponseWriter) {
	var all []string
	for path, text := range s.written {
		if strings.HasPrefix(path, openReports) && text != "" {
			all = append(all, text)
		}
	}
	fmt.Fprintf(w, `{"kind":"ReportList","apiVersion":"openreports.io/v1alpha1","metadata":{},"items":[%s]}`, strings.Join(all, ","))
}

// audited runs an audit that writes reports, until it has seen so many objects. It returns how many it has seen, and which
// writes were sent.
func (s *stand) audited(ctx context.Context, chain *admission.Chain, ends int) (seen int, writes []string, err error) {
	reports, err := NewReports(ctx, s.config(), "", nil)
	if err != nil {
		return 0, nil, err
	}
	s.writes = nil
	o := s.options(chain, "pods")
	o.PageSize = DefaultPageSize
	err = Run(ctx, o, func(r *report.Result) error {
		if seen++; seen > ends {
			return errStopped
		}
		return reports.Write(ctx, r)
	})
	if err == nil {
		_, err = reports.RemoveOld(ctx)
	}
	return seen, s.writes, err
}

// TestManyObjects audits many Pods. The memory does not grow with them. An audit that was stopped leaves the reports that it
// wrote; the next one writes only the others, and one after that writes nothing.
func TestManyObjects(t *testing.T) {
	const heapMax = 32 << 20
	n := 6000
	if testing.Short() {
		n = 1000
	}
	s := newStand(t)
	chain := s.serveMany(n)
	f := func(about string, ends, wantSeen, wantWrites int, wantErr error) {
		t.Helper()
		var seen int
		var writes []string
		var err error
		peak := heapPeak(func() { seen, writes, err = s.audited(t.Context(), chain, ends) })
		if seen != wantSeen || len(writes) != wantWrites || !errors.Is(err, wantErr) {
			t.Errorf("%s: got %d objects, %d writes, %v, want %d, %d, %v", about, seen, len(writes), err, wantSeen, wantWrites, wantErr)
		}
		if peak > heapMax {
			t.Errorf("%s: got %d MiB of memory, want at most %d", about, peak>>20, heapMax>>20)
		}
		t.Logf("%s: %d KiB of memory", about, peak>>10)
	}
	f("stopped", n/2, n/2+1, n/200, errStopped)
	f("the next one", n, n, n/100-n/200, nil)
	f("without changes", n, n, 0, nil)
}

// BenchmarkRun audits Pods, of which one in a hundred gets a report in the first round. The time includes that of the stand.
func BenchmarkRun(b *testing.B) {
	for _, n := range [...]int{5000, 50_000, 500_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newStand(b)
			chain := s.serveMany(n)
			b.ReportAllocs()
			for b.Loop() {
				peak := heapPeak(func() {
					if seen, _, err := s.audited(b.Context(), chain, n); seen != n || err != nil {
						b.Error(seen, err)
					}
				})
				b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
			}
		})
	}
}
