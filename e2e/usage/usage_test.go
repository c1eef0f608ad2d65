// Package usage queries a real Prometheus for the usage of containers, as the plugin
// InitialResources does.
package usage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

const (
	scrape = time.Minute
	window = 5 * time.Minute // the plugin's resolution

	// tolerance is how far the plugin's request may be above the percentile: one step, and the
	// effect of a window that is cut off at the end of the range.
	tolerance = 1.01
)

// A history is the usage of an image's containers.
type history struct {
	image, namespace string
	pods, windows    int
	age              time.Duration // of the first window
}

// usedIn returns the usage in a window, in thousandths of a core and bytes. It goes up and down, so
// that the percentile is neither the first, the last nor the largest value.
func (h *history) usedIn(pod, window int) (cpu, memory float64) {
	at := float64((window*37 + pod*11) % 100)
	return 50 + 5*at + float64(len(h.image)), (64 + at + float64(len(h.image))) * (1 << 20)
}

var histories = []history{
	{"docker.io/library/web:1.0", "shop", 2, 60, 24 * time.Hour},
	{"registry.example.com/api:2.0", "shop", 1, 10, 24 * time.Hour}, // the next one is earlier
	{"registry.example.com/api:2.0", "shop", 1, 40, 10 * 24 * time.Hour},
	{"docker.io/library/elsewhere:1.0", "other", 1, 50, 48 * time.Hour},
	{"docker.io/acme/tags:1.0", "other", 1, 10, 20 * 24 * time.Hour},
	{"docker.io/acme/tags-not:1.0", "other", 1, 40, 20 * 24 * time.Hour},
	{`quote"\d:1`, "shop", 1, 40, 24 * time.Hour},
}

// A container is a container of the created pod.
type container struct {
	image string
	of    []int // histories
}

var containers = []container{
	{"web:1.0", []int{0}},
	{"registry.example.com/api:2.0", []int{1, 2}},
	{"elsewhere:1.0", []int{3}},
	{"acme/tags:9.9", []int{4}},
	{`quote"\d:1`, []int{6}},
	{"none:1", nil},
	{`"}[5m]) or vector(1) # ` + "\n" + `\`, nil},
}

// TestPrometheus stores samples in a Prometheus, and compares the requests of a pod with those that
// upstream's plugin computes from these samples.
func TestPrometheus(t *testing.T) {
	url := startPrometheus(t)
	for _, percentile := range []int64{90, 50, 100, 1} {
		requests := review(t, url, percentile)
		for i, c := range containers {
			var cpu, memory []int64
			for _, h := range c.of {
				for pod := range histories[h].pods {
					for window := range histories[h].windows {
						used, bytes := histories[h].usedIn(pod, window)
						cpu, memory = append(cpu, int64(used)), append(memory, int64(bytes))
					}
				}
			}
			list := requests[i].Resources.Requests
			if c.of == nil {
				if len(list) > 0 {
					t.Errorf("%s: got requests %v, want none", c.image, list)
				}
				continue
			}
			check(t, fmt.Sprintf("%s: percentile %d of CPU", c.image, percentile), list.Cpu().MilliValue(), upstream(cpu, percentile))
			check(t, fmt.Sprintf("%s: percentile %d of memory", c.image, percentile), list.Memory().Value(), upstream(memory, percentile))
		}
	}
}

func check(t *testing.T, what string, got, want int64) {
	t.Helper()
	t.Logf("%s: got %d, upstream %d", what, got, want)
	if got < want-1 || float64(got) > tolerance*float64(want)+1 {
		t.Errorf("%s: got %d, want %d or up to %.0f %% more", what, got, want, (tolerance-1)*100)
	}
}

// upstream computes a request from samples as upstream's plugin does (gcm.go there).
func upstream(samples []int64, percentile int64) int64 {
	slices.Sort(samples)
	return samples[int(math.Ceil(float64(len(samples))*float64(percentile)/100))-1]
}

// review runs the built fastadmit review on a pod, and returns its containers.
func review(t *testing.T, url string, percentile int64) []corev1.Container {
	t.Helper()
	pod := &corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "p", "shop"
	for i, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: c.image})
	}
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	admission := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: InitialResources
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: InitialResourcesConfiguration, source: {url: %q}, percentile: %d}
`, url, percentile))
	command := exec.Command("../.cache/fastadmit", "review", cluster.WriteFile(t, "pod.json", object), "--output=object",
		"--enable-admission-plugins=InitialResources", "--admission-control-config-file="+admission, "--allow-plugin-calls")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	got := new(corev1.Pod)
	if err := yaml.Unmarshal(stdout.Bytes(), got); err != nil || len(got.Spec.Containers) != len(containers) {
		t.Fatalf("got %v of %s, want a pod with %d containers", err, stdout.String(), len(containers))
	}
	return got.Spec.Containers
}

// startPrometheus starts a Prometheus with the histories, and returns its URL.
func startPrometheus(t *testing.T) string {
	t.Helper()
	data, config := t.TempDir(), cluster.WriteFile(t, "prometheus.yaml", []byte("global: {}"))
	walkthrough.Run(t, nil, walkthrough.Tool(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet",
		cluster.WriteFile(t, "samples", samples()), data)
	address := testserver.FreeAddress(t)
	cluster.Start(t, "prometheus", nil, walkthrough.Tool(t, "prometheus"), "--config.file", config, "--storage.tsdb.path", data,
		"--storage.tsdb.retention.time", "60d", "--web.listen-address", address)
	url := "http://" + address
	cluster.Await(t, "Prometheus", func() error {
		response, err := http.Get(url + "/-/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("got code %d, want 200", response.StatusCode)
		}
		return nil
	})
	return url
}

// samples returns the metrics that a kubelet's cAdvisor would have had, in the format OpenMetrics.
func samples() []byte {
	var memory, cpu bytes.Buffer
	fmt.Fprintln(&memory, "# TYPE container_memory_usage_bytes gauge")
	fmt.Fprintln(&cpu, "# TYPE container_cpu_usage_seconds counter")
	for i, h := range histories {
		begin := time.Now().Add(-h.age).Truncate(window)
		for pod := range h.pods {
			labels := fmt.Sprintf(`{namespace=%q,pod="p%d-%d",container="c",image=%q`, h.namespace, i, pod, h.image)
			seconds := 0.0
			for w := range h.windows {
				used, bytes := h.usedIn(pod, w)
				for s := scrape; s <= window; s += scrape {
					at := begin.Add(time.Duration(w)*window + s).Unix()
					seconds += used / 1000 * scrape.Seconds()
					fmt.Fprintf(&memory, "container_memory_usage_bytes%s} %.0f %d\n", labels, bytes, at)
					fmt.Fprintf(&cpu, "container_cpu_usage_seconds_total%s,cpu=\"total\"} %.6f %d\n", labels, seconds, at)
				}
			}
		}
	}
	memory.Write(cpu.Bytes())
	memory.WriteString("# EOF\n")
	return memory.Bytes()
}
