// Package tracing sends the spans of an API server and of fastadmit to an OpenTelemetry collector.
package tracing

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// spans is a batch of spans as OTLP writes it in JSON.
type spans struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes attributes }
		ScopeSpans []struct{ Spans []span }
	}
}

type span struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          attributes
}

type attributes []struct {
	Key   string
	Value struct{ StringValue string }
}

func (all attributes) get(key string) string {
	for _, a := range all {
		if a.Key == key {
			return a.Value.StringValue
		}
	}
	return ""
}

// collector starts a collector. received returns the spans that it has received, by ID, and the IDs of those of each
// service.
func collector(t *testing.T) (address string, received func() (byID map[string]span, of map[string][]string)) {
	t.Helper()
	address = testserver.FreeAddress(t)
	var out cluster.Buffer
	cluster.Start(t, "collector", &out, cluster.Built("collector"), address)
	cluster.Await(t, "the collector", func() error {
		if !strings.HasPrefix(out.String(), "ready\n") {
			return errors.New("it is not ready")
		}
		return nil
	})
	return address, func() (map[string]span, map[string][]string) {
		byID, of := make(map[string]span), make(map[string][]string)
		for line := range strings.Lines(out.String()) {
			if line == "ready\n" || !strings.HasSuffix(line, "\n") {
				continue
			}
			var batch spans
			if err := json.Unmarshal([]byte(line), &batch); err != nil {
				t.Fatal(err)
			}
			for _, r := range batch.ResourceSpans {
				service := r.Resource.Attributes.get("service.name")
				for _, scope := range r.ScopeSpans {
					for _, s := range scope.Spans {
						byID[s.SpanID] = s
						of[service] = append(of[service], s.SpanID)
					}
				}
			}
		}
		return byID, of
	}
}

// TestTrace creates a Pod. Reviews of it must be in the API server's trace of the request, below its calls of the webhooks,
// and plugins below the reviews.
func TestTrace(t *testing.T) {
	t.Parallel()
	address, received := collector(t)
	configuration := func(more string) string {
		return cluster.WriteFile(t, "tracing.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+
			address+"\n"+more))
	}
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{
		Flags: map[string]string{"tracing-config-file": configuration("samplingRatePerMillion: 1000000\n")},
	})
	authority := cluster.NewAuthority(t)
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--enable-admission-plugins",
		"AlwaysPullImages,DefaultTolerationSeconds,AlwaysDeny", "--tracing-config-file", configuration(""))
	hook := func(path string) cluster.Webhook {
		return cluster.Webhook{URL: fastadmit.URL + path, CA: authority.PEM, Rules: cluster.Rules("CREATE", "", "v1", "pods")}
	}
	marker := cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM}
	s.Mutating(t, marker, hook("/mutate/AlwaysPullImages"), hook("/mutate/DefaultTolerationSeconds"))
	s.Validating(t, marker, hook("/validate/AlwaysPullImages"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "traced"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b:1"}}},
	}
	if _, err := s.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mutate/AlwaysPullImages: patched", "mutate/DefaultTolerationSeconds: patched", "validate/AlwaysPullImages: allowed",
		"AlwaysPullImages: patched", "DefaultTolerationSeconds: patched", "AlwaysPullImages: allowed",
	}
	slices.Sort(want)
	cluster.Await(t, "the spans of the reviews", func() error {
		byID, of := received()
		return check(byID, of, want)
	})
}

// check compares the spans of the reviews of the Pod, and of the plugins below them, with want.
func check(byID map[string]span, of map[string][]string, want []string) error {
	var got []string
	traces := make(map[string]bool)
	for _, id := range of["fastadmit"] {
		s := byID[id]
		review := s
		if parent, isPlugin := byID[s.ParentSpanID]; isPlugin && slices.Contains(of["fastadmit"], s.ParentSpanID) {
			review = parent
		}
		if review.Attributes.get("name") != "traced" {
			continue
		}
		if !slices.Contains(of["apiserver"], review.ParentSpanID) {
			return fmt.Errorf("%s is not below a span of the API server", review.Name)
		}
		traces[s.TraceID] = true
		got = append(got, s.Name+": "+s.Attributes.get("decision"))
	}
	if slices.Sort(got); !slices.Equal(got, want) || len(traces) != 1 {
		return fmt.Errorf("got %q in the traces %v, want %q in one", got, slices.Collect(maps.Keys(traces)), want)
	}
	return nil
}
