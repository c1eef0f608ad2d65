package oracle_test

import (
	"encoding/json"
	"fmt"
	"math"
	randv2 "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func initialResources() suite {
	var variants []variant
	for _, only := range []bool{false, true} {
		config, err := json.Marshal(map[string]any{"containers": usageHistory(), "namespaceOnly": only})
		if err != nil {
			panic(err)
		}
		variants = append(variants, variant{
			about: fmt.Sprint("namespaceOnly ", only), options: handlers.DefaultOptions(), config: string(config),
			ours: fmt.Sprintf(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"InitialResourcesConfiguration","source":{"url":%q},`+
				`"namespaceOnly":%v}`, usageServer(), only),
		})
	}
	return suite{
		name: "InitialResources", generate: (*generator).withoutRequests, changes: true, variants: variants,
		removed: "../.cache/kubernetes-v1.10", getsConfig: true,
		background: true, // connections outlive cases
	}
}

// usedImages are the images with a history of usage.
var usedImages = []string{
	"app:v1", "app:v2", "other", "z/y:1", "registry.example.com:5000/a:1", "registry.example.com:5000/b", "ghcr.io/x/y:2",
	"quay.io/q@sha256:0123456789012345678901234567890123456789012345678901234567890123", `quote":1`, `back\slash:1`, "new\nline:1",
	"é:1", ".*", "%2F",
}

// A usedContainer has the usage of a container.
type usedContainer struct {
	Image     string    `json:"image"` // as in its pod
	Namespace string    `json:"namespace"`
	Recent    bool      `json:"recent"` // whether the samples are from the last 7 days
	CPU       []float64 `json:"cpu"`
	Memory    []float64 `json:"memory"`
}

// usageHistory is constant. Samples are the largest integers of the steps in which
// fastadmit's plugin counts them, so that both sides get the same values.
var usageHistory = sync.OnceValue(func() (all []usedContainer) {
	random := randv2.New(randv2.NewPCG(1, 2))
	samples := func(least, most int) (values []float64) {
		spread := 1 + random.IntN(300)
		at := least + random.IntN(most-least)
		for range []int{0, 1, 5, 14, 15, 29, 30, 31, 60}[random.IntN(9)] {
			values = append(values, math.Floor(math.Exp2(float64(at+random.IntN(spread))/128)))
		}
		return values
	}
	for _, image := range usedImages {
		for _, namespace := range somePlaces {
			for _, recent := range []bool{false, true} {
				if random.IntN(3) > 0 {
					all = append(all, usedContainer{image, namespace, recent, samples(8*128, 12*128), samples(12*128, 40*128)})
				}
			}
		}
	}
	return all
})

// somePlaces are the namespaces of the history.
var somePlaces = []string{"n1", "n2", `n"3`}

// usageServer starts a server that answers the PromQL queries of the plugin, and returns its
// URL. Package usage tests with a real Prometheus.
var usageServer = sync.OnceValue(func() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		steps, err := usageSteps(r.FormValue("query"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		type result struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		}
		results := make([]result, 0, len(steps))
		for step, samples := range steps {
			results = append(results, result{map[string]string{"v": strconv.Itoa(step)}, [2]any{1764000000.5, strconv.Itoa(samples)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success",
			"data": map[string]any{"resultType": "vector", "result": results}})
	}))
	return server.URL
})

const promString = `("(?:[^"\\]|\\.)*")`

var usageQuery = regexp.MustCompile(`^sum_over_time\(count_values\("v", clamp_min\(ceil\(128 \* log2\(` +
	`(?:(1000 \* sum without \(cpu\) \(rate\(container_cpu_usage_seconds_total)|avg_over_time\(container_memory_usage_bytes)` +
	`\{image=~` + promString + `(?:,namespace=` + promString + `)?\}\[300s\]\)+, -1\)\)\[(7|30)d:300s\]\)$`)

func usageSteps(query string) (map[int]int, error) {
	m := usageQuery.FindStringSubmatch(query)
	if m == nil {
		return nil, fmt.Errorf("not a query of the plugin: %s", query)
	}
	image, err := strconv.Unquote(m[2])
	if err != nil {
		return nil, err
	}
	pattern, err := regexp.Compile(`^(?s:` + image + `)$`)
	if err != nil {
		return nil, err
	}
	steps := make(map[int]int)
	for _, c := range usageHistory() {
		if !pattern.MatchString(atRuntime(c.Image)) || m[3] != "" && strconv.Quote(c.Namespace) != m[3] || m[4] == "7" && !c.Recent {
			continue
		}
		values := c.Memory
		if m[1] != "" {
			values = c.CPU
		}
		for _, value := range values {
			steps[int(math.Ceil(128*math.Log2(value)))]++
		}
	}
	return steps, nil
}

// atRuntime returns the name of an image in a container runtime.
func atRuntime(image string) string {
	if named, err := reference.ParseDockerRef(image); err == nil {
		return named.String()
	}
	return image
}

// withoutRequests generates a request about a pod, most of whose containers have no
// requests.
func (g *generator) withoutRequests() *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	operation := admission.Create
	if g.in(12) {
		operation = admission.Update
	}
	c := g.request(operation, podKind, pods)
	c.Namespace = pick(g, append(somePlaces, "n4", "%2F")...)
	pod := func() runtime.Object {
		p := g.aPod()
		p.Namespace = c.Namespace
		for _, list := range []*[]corev1.Container{&p.Spec.InitContainers, &p.Spec.Containers} {
			*list = some(g, 3, g.thrifty)
		}
		return p
	}
	return g.write(c, pod(), pod)
}

func (g *generator) thrifty() corev1.Container {
	c := corev1.Container{Name: g.word(), Image: pick(g, append(usedImages, "app:v3", "app", "other:v2", "registry.example.com:5000/c:9",
		"", "..", "none:1")...)}
	amounts := func() corev1.ResourceList {
		if g.in(2) {
			return nil
		}
		list := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "example.com/x"} {
			if g.in(4) {
				list[name] = pick(g, resource.MustParse("0"), resource.MustParse("100m"), resource.MustParse("1Gi"))
			}
		}
		return list
	}
	c.Resources.Requests, c.Resources.Limits = amounts(), amounts()
	return c
}
