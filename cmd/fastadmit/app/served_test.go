package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// bundles is an API server that serves bundles in one version, "" for none. It fails for "broken".
type bundles string

func (b bundles) Versions(context.Context, string) ([]string, error) {
	switch b {
	case "broken":
		return nil, errors.New("no answer")
	case "":
		return nil, nil
	}
	return []string{string(b)}, nil
}

func (b bundles) Resources(context.Context, schema.GroupVersion) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "bundles"}}}, nil
}

// TestServed has an API server that serves other versions than the rules name. The log, /readyz and a
// metric report that, the log only once.
func TestServed(t *testing.T) {
	var log strings.Builder
	set := metrics.NewSet()
	s := newServedCheck(new(knownCluster), slog.New(slog.NewTextHandler(&log, nil)), set)
	rules := []admission.Rule{admission.NewRule("example.com", "v1", "bundles", codec.Create)}
	plugins := []*admission.Plugin{{Name: "Mine", Rules: rules}, {Name: "Default", Rules: rules, OnByDefault: true}}
	f := func(served bundles, wantAbout, wantMetric string, wantLog ...string) {
		t.Helper()
		log.Reset()
		s.ask(t.Context(), served, plugins)
		ok, about := s.check().Ask()
		if !ok || about != wantAbout {
			t.Errorf("%q: got %v, %s, want %s", served, ok, about, wantAbout)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if log.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(wantLog) {
			t.Errorf("%q: got the log %s, want %d lines", served, &log, len(wantLog))
		}
		for i := range min(len(lines), len(wantLog)) {
			if !strings.Contains(lines[i], wantLog[i]) {
				t.Errorf("%q: got the log %s, want %s", served, lines[i], wantLog[i])
			}
		}
		var series strings.Builder
		if set.WritePrometheus(&series); !strings.Contains(series.String(), "\nfastadmit_unserved_rules "+wantMetric+"\n") {
			t.Errorf("%q: got %s, want %s", served, &series, wantMetric)
		}
	}
	const passes = "requests for bundles.example.com pass without it, because the API server serves version v2 and its rules name v1"
	const nothing = "it has nothing to do, because the API server does not serve bundles.example.com"
	f("v1", "", "0")
	f("v2", "plugin Mine: "+passes+"\nplugin Default: "+passes, "2", "level=WARN", "level=WARN")
	f("v2", "plugin Mine: "+passes+"\nplugin Default: "+passes, "2")
	f("broken", "plugin Mine: "+passes+"\nplugin Default: "+passes, "2", "no answer")
	f("", "plugin Mine: "+nothing+"\nplugin Default: "+nothing, "0", "level=WARN", "level=INFO")
	f("v1", "", "0")
	if err := s.start(t.Context(), nil); err != nil { // without an API server
		t.Error(err)
	}
}
