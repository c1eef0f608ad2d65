// The command v1.10 answers AdmissionReviews as the admission plugin InitialResources of
// Kubernetes v1.10 would, the last release that had it. Its arguments are the plugin's name and
// what containers used, as JSON. Package removed says what it reads and writes.
//
// Upstream reads usage from Google Cloud Monitoring, the one source that worked in that release.
// The package in googleapi replaces its client.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	cloudmonitoring "google.golang.org/api/cloudmonitoring/v2beta2"
	admissionv1 "k8s.io/api/admission/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
	corescheme "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/initialresources"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

const week = 7 * 24 * time.Hour

func main() {
	if len(os.Args) != 3 || os.Args[1] != initialresources.PluginName {
		log.Fatalf("got arguments %q, want %s and usage", os.Args[1:], initialresources.PluginName)
	}
	// The plugin logs each estimate, by a package that writes to this variable.
	var err error
	if os.Stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		log.Fatal(err)
	}
	if err := run(os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// A history is the usage that the source has.
type history struct {
	NamespaceOnly bool
	Containers    []struct {
		Image, Namespace string
		Recent           bool // the samples are of the last 7 days
		CPU, Memory      []float64
	}
}

// answer is the answer of Google Cloud Monitoring.
func (h *history) answer(call *cloudmonitoring.TimeseriesListCall) (*cloudmonitoring.ListTimeseriesResponse, error) {
	oldest, err := time.Parse(time.RFC3339, call.OldestTime)
	if err != nil {
		return nil, err
	}
	youngest, err := time.Parse(time.RFC3339, call.YoungestTime)
	if err != nil {
		return nil, err
	}
	response := new(cloudmonitoring.ListTimeseriesResponse)
	for i := range h.Containers {
		c := &h.Containers[i]
		if youngest.Sub(oldest) == week && !c.Recent || !selected(call.LabelList, c.Image, c.Namespace) {
			continue
		}
		values := c.CPU
		if strings.HasSuffix(call.Metric, "/memory/usage") {
			values = c.Memory
		}
		series := new(cloudmonitoring.Timeseries)
		for j := range values {
			series.Points = append(series.Points, &cloudmonitoring.Point{DoubleValue: &values[j]})
		}
		response.Timeseries = append(response.Timeseries, series)
	}
	return response, nil
}

// selected reports whether labels such as NAME==VALUE and NAME=~PREFIX.* select a container. The
// second form selects what it selects for fastadmit's plugin, on purpose: images with that name,
// not all whose names begin with it, or all images if it is empty.
func selected(labels []string, image, namespace string) bool {
	for _, label := range labels {
		i := strings.IndexByte(label, '=')
		value, operator := image, label[i:i+2]
		if strings.HasSuffix(label[:i], "/pod_namespace") {
			value = namespace
		}
		want := label[i+2:]
		switch operator {
		case "==":
			if value != want {
				return false
			}
		case "=~":
			want = strings.TrimSuffix(want, ".*")
			if want == "" || !strings.HasPrefix(value, want) || len(value) > len(want) && value[len(want)] != ':' &&
				value[len(want)] != '@' {
				return false
			}
		}
	}
	return true
}

// start makes the plugin, which asks the machine that it runs on for its project.
func start(h *history) (admission.MutationInterface, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "project")
	}))
	defer server.Close()
	if err := os.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://")); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"ir-data-source": "gcm", "ir-percentile": "90", "ir-namespace-only": "false",
		"logtostderr": "true"} {
		if name == "ir-namespace-only" && h.NamespaceOnly {
			value = "true"
		}
		if err := flag.Set(name, value); err != nil {
			return nil, err
		}
	}
	cloudmonitoring.Answer = h.answer
	plugins := new(admission.Plugins)
	initialresources.Register(plugins)
	plugin, err := plugins.InitPlugin(initialresources.PluginName, nil, admission.PluginInitializers{})
	if err != nil {
		return nil, err
	}
	return plugin.(admission.MutationInterface), nil
}

func run(usage string) error {
	h := new(history)
	if err := json.Unmarshal([]byte(usage), h); err != nil {
		return err
	}
	plugin, err := start(h)
	if err != nil {
		return err
	}
	return removed.Serve(nil, func(r *admissionv1.AdmissionRequest, phase string) (any, error) {
		return ask(plugin, r, phase)
	})
}

func ask(plugin admission.MutationInterface, r *admissionv1.AdmissionRequest, phase string) (*removed.Answer, error) {
	if !plugin.Handles(admission.Operation(r.Operation)) || r.Kind.Kind != "Pod" || r.Kind.Group != "" || len(r.Object.Raw) == 0 ||
		phase != "mutate" {
		return &removed.Answer{}, nil
	}
	pod, internal, a := new(corev1.Pod), new(core.Pod), new(removed.Answer)
	if err := json.Unmarshal(r.Object.Raw, pod); err != nil {
		return nil, err
	}
	if err := corescheme.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return nil, err
	}
	internal.Namespace = r.Namespace // as every object has it that is created
	var err error
	if a.Before, err = external(internal); err != nil {
		return nil, err
	}
	if err := plugin.Admit(admission.NewAttributesRecord(internal, nil, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), nil)); err != nil {
		return nil, err
	}
	a.After, err = external(internal)
	return a, err
}

func external(internal *core.Pod) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	return pod, corescheme.Convert_core_Pod_To_v1_Pod(internal.DeepCopy(), pod, nil)
}
