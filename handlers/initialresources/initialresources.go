// Package initialresources is the admission plugin InitialResources.
//
// It sets missing requests of containers to what containers with the same image used before.
// A pod without requests is scheduled as if it used nothing, and is evicted first; most
// authors of pods do not know how much they use.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/initialresources v1.10.13, the last
// release that had it. Upstream queried InfluxDB or Google Cloud Monitoring; this plugin
// queries a server with the HTTP API of Prometheus.
package initialresources

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// annotation says which requests the plugin set.
	annotation = "kubernetes.io/initial-resources"

	resourceCPU    = "cpu"
	resourceMemory = "memory"

	// imagesMax is how many images of a pod are looked up. Containers with other images get no requests.
	imagesMax = 32

	// questionsMax is the maximum number of concurrent questions about one pod.
	questionsMax = 4

	// Questions end before the call of kube-apiserver times out, so that the pod gets an
	// answer: a tenth of the time earlier, at most reserveMax.
	reserveShare = 10
	reserveMax   = 500 * time.Millisecond

	// checkEach is the number of elements after which ctx is checked.
	checkEach = 1024
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:           "InitialResources",
		Summary:        "sets the requests of containers without requests from the past usage of their image",
		Rules:          []admission.Rule{admission.NewRule("", "v1", "pods", codec.Create)},
		Mutates:        true,
		RequiresConfig: true,
		Calls:          true,
		LastRelease:    "1.10",
		New: func(setup admission.Setup) (admission.Handler, error) {
			c := new(configuration)
			if err := admission.DecodeConfig(setup.Config, c, c.validate); err != nil {
				return admission.Handler{}, err
			}
			s, err := newSource(c, setup.Metrics)
			if err != nil {
				return admission.Handler{}, err
			}
			return admission.Handler{Admit: (&plugin{s}).admit}, nil
		},
	}
}

type plugin struct{ source *source }

// wanted is a resource of an image.
type wanted struct{ resource, image string }

// An estimate is the request for a resource of an image, empty for none.
type estimate struct {
	wanted
	quantity string
}

// lists are the fields with containers, in upstream's order, and their names in messages.
var lists = []struct{ name, called string }{{"initContainers", "init container "}, {"containers", "container "}}

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	known, err := missing(ctx, review)
	if err != nil {
		return admission.Errored(err)
	}
	if len(known) == 0 {
		return admission.Allowed()
	}
	p.estimate(ctx, review.Namespace(), known)
	return fill(ctx, review, known)
}

// needs reports whether a container has neither request nor limit of a resource.
func needs(container codec.Value, resource string) bool {
	resources := container.Get("resources")
	return !resources.Get("requests", resource).Exists() && !resources.Get("limits", resource).Exists()
}

// missing returns the resources for which the pod's containers need estimates, each once.
func missing(ctx context.Context, review *codec.Review) (map[wanted]*estimate, error) {
	var known map[wanted]*estimate
	spec := review.Object.Get("spec")
	for _, list := range lists {
		for i, container := range spec.Get(list.name).Elements() {
			if i%checkEach == checkEach-1 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for _, resource := range []string{resourceCPU, resourceMemory} {
				if !needs(container, resource) {
					continue
				}
				image := container.Get("image").String()
				if _, ok := known[wanted{resource, image}]; ok || len(known) >= 2*imagesMax || len(image) > imageMax {
					continue
				}
				if known == nil {
					known = make(map[wanted]*estimate)
				}
				w := wanted{resource, image}
				known[w] = &estimate{wanted: w}
			}
		}
	}
	return known, nil
}

// estimate gets the estimates of all wanted requests. Without an answer in time, a request
// is not set; the pod is not denied because of that.
func (p *plugin) estimate(ctx context.Context, namespace string, known map[wanted]*estimate) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/reserveShare, reserveMax)))
		defer cancel()
	}
	work := make(chan *estimate, len(known))
	for _, e := range known {
		work <- e
	}
	close(work)
	var workers sync.WaitGroup
	for range min(questionsMax, len(known)) {
		workers.Go(func() {
			for e := range work {
				u, err := p.source.estimate(ctx, e.resource, e.image, namespace)
				switch {
				case err != nil:
					p.source.series.unestimated.Inc()
				case u.samples == 0:
				case e.resource == resourceCPU:
					e.quantity = resource.NewMilliQuantity(u.value, resource.DecimalSI).String()
				default:
					e.quantity = resource.NewQuantity(u.value, resource.DecimalSI).String()
				}
			}
		})
	}
	workers.Wait()
}

// fill sets the requests, and the annotation that says so.
func fill(ctx context.Context, review *codec.Review, known map[wanted]*estimate) admission.Result {
	said := []byte("Initial Resources plugin set: ")
	head := len(said)
	spec := review.Object.Get("spec")
	for _, list := range lists {
		for i, container := range spec.Get(list.name).Elements() {
			if i%checkEach == checkEach-1 && ctx.Err() != nil {
				return admission.Errored(ctx.Err())
			}
			image, before := container.Get("image").String(), len(said)
			for _, resource := range []string{resourceCPU, resourceMemory} {
				e := known[wanted{resource, image}]
				if e == nil || e.quantity == "" || !needs(container, resource) {
					continue
				}
				if len(said) > before {
					said = append(said, ", "...)
				} else if before > head {
					said = append(said, "; "...)
				}
				said = append(said, resource...)
				container.SetString(e.quantity, "resources", "requests", resource)
			}
			if len(said) == before {
				continue
			}
			name := container.Get("name").String()
			if !review.Object.Fits(2 * (cap(said) + len(name))) { // the annotation grows by as much
				return admission.Errored(review.Err())
			}
			said = append(append(append(said, " request for "...), list.called...), name...)
		}
	}
	if len(said) > head {
		review.Object.SetString(string(said), "metadata", "annotations", annotation)
	}
	return admission.Allowed()
}
