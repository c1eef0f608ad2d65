package server

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestMetricsSayWhatTheyAre checks that each metric has a type and a help text, once and
// before its first series.
func TestMetricsSayWhatTheyAre(t *testing.T) {
	s := serve(t, "AlwaysPullImages,AlwaysDeny", nil)
	s.Open(t).Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	types, texts := make(map[string]string), make(map[string]string)
	part := regexp.MustCompile(`_(bucket|sum|count)$`)
	for line := range strings.Lines(s.Get(t, "/metrics", 200)) {
		if about, ok := strings.CutPrefix(line, "# "); ok {
			keyword, rest, _ := strings.Cut(about, " ")
			name, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
			said := map[string]map[string]string{"HELP": texts, "TYPE": types}[keyword]
			if said[name] != "" || text == "" {
				t.Errorf("%s: got another line of its kind, or one that says nothing", line)
			}
			said[name] = text
			continue
		}
		name := regexp.MustCompile(`^\w+`).FindString(line)
		if whole := part.ReplaceAllString(name, ""); types[whole] == "histogram" || types[whole] == "summary" {
			name = whole
		}
		if types[name] == "" || texts[name] == "" {
			t.Errorf("%s: got type %q and help %q, want both before it", name, types[name], texts[name])
		}
		if strings.HasPrefix(name, "fastadmit_") && help[name] == "" {
			t.Errorf("%s: got the help text of the process's own metrics", name)
		}
	}
	if types["fastadmit_request_duration_seconds"] != "histogram" || types["fastadmit_requests_total"] != "counter" ||
		types["fastadmit_requests_in_flight"] != "gauge" {
		t.Errorf("got types %v", types)
	}
}

// TestOverruns has plugins that answer after kube-apiserver has stopped waiting.
func TestOverruns(t *testing.T) {
	late := func(ctx context.Context, _ *codec.Review) admission.Result {
		<-ctx.Done()
		return admission.Allowed()
	}
	allow := func(context.Context, *codec.Review) admission.Result { return admission.Allowed() }
	plugin := func(name string, do func(context.Context, *codec.Review) admission.Result) admission.Plugin {
		return admission.Plugin{
			Name: name, Rules: []admission.Rule{admission.Any()}, Mutates: true, Validates: true, OutOfTree: true,
			New: func(admission.Setup) (admission.Handler, error) {
				return admission.Handler{Admit: allow, Validate: do}, nil
			},
		}
	}
	// Failures of the first plugin are ignored, so the second would be next.
	s := serve(t, "Late,Next", []admission.Plugin{plugin("Late", late), plugin("Next", allow)}, func(s *setup) {
		s.settings["Late"] = admission.Settings{FailurePolicy: admissionregistrationv1.Ignore}
	})
	x := s.Open(t)
	f := func(path string, code int, want ...string) {
		t.Helper()
		if response, body := x.Send(servertest.Request(path, corpus.MustRead(servertest.PodCreate))); response.StatusCode != code {
			t.Errorf("%s: got %s %s, want %d", path, response.Status, body, code)
		}
		metrics := s.Get(t, "/metrics", 200)
		for _, series := range want {
			if !strings.Contains(metrics, "\n"+series+"\n") {
				t.Errorf("%s: got no %s in\n%s", path, series, metrics)
			}
		}
	}
	f("/mutate?timeout=1s", 200, `fastadmit_budget_overruns_total{phase="mutate"} 0`,
		`fastadmit_budget_overruns_total{phase="validate"} 0`,
		`fastadmit_plugins_not_started_total{phase="validate"} 0`)
	f("/validate/Late?timeout=1s", 200, `fastadmit_budget_overruns_total{phase="validate"} 1`,
		`fastadmit_plugins_not_started_total{phase="validate"} 0`)
	f("/validate?timeout=1s", 500, `fastadmit_budget_overruns_total{phase="validate"} 2`,
		`fastadmit_plugins_not_started_total{phase="validate"} 1`,
		`fastadmit_plugins_not_started_total{phase="mutate"} 0`, `fastadmit_budget_overruns_total{phase="mutate"} 0`)
}
