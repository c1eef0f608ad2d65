package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// A Source has the webhooks that a plugin calls: those of static manifests and, if the
// configuration enables them, those of the current custom resources. Several goroutines
// may use it at the same time.
type Source struct {
	kind        *Kind
	config      *Config
	cluster     policy.Cluster
	services    *cluster.Objects[*corev1.Service] // nil if the configuration allows no Services
	credentials *credentials
	metrics     *sourceMetrics
	resources   *resources // nil without custom resources

	configured   bool              // the plugin has a configuration file
	interpretCEL bool              // from Setup
	version      admission.Version // from Setup
	static       []*Webhook
	all          atomic.Pointer[policy.Candidates[*Webhook]]
}

// NewSource returns the Source for the setup of a plugin. plugin is the name of the plugin,
// for metrics. The error describes errors in the configuration, the kubeconfig file and the
// manifests.
func NewSource(plugin string, kind *Kind, setup admission.Setup) (*Source, error) {
	config, err := readConfig(setup.Config)
	if err != nil {
		return nil, err
	}
	s := &Source{
		kind: kind, config: config, configured: setup.Config != nil, metrics: newSourceMetrics(plugin, setup.Cluster.Metrics()),
		interpretCEL: setup.InterpretCEL, version: setup.Version,
		cluster: policy.Cluster{Namespaces: cluster.Namespaces.In(setup.Cluster), Access: cluster.AccessIn(setup.Cluster)},
	}
	own := config.APIVersion == customresource.OwnVersion
	if own {
		s.services = cluster.Services.In(setup.Cluster)
	}
	if s.credentials, err = readCredentials(setup.Kubeconfig); err != nil {
		return nil, err
	}
	read, err := kind.read(setup.Manifests, own)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range read {
		webhooks, err := s.ready(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind.Name, c.Name, err))
		}
		s.static = append(s.static, webhooks...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.use(nil)
	if config.CustomResources {
		s.resources = newResources(s, setup.Cluster)
	}
	return s, nil
}

// ready compiles the webhooks of a configuration with defaults.
func (s *Source) ready(c *configuration) (all []*Webhook, err error) {
	var errs []error
	for i := range c.webhooks {
		w, err := newWebhook(s, c.Name, &c.webhooks[i], field.NewPath("webhooks").Index(i))
		errs = append(errs, err)
		w.metrics = s.metrics.of(w)
		all = append(all, w)
	}
	return all, errors.Join(errs...)
}

// use sets the webhooks that are called from now on: the static ones, then those of custom
// resources.
func (s *Source) use(custom []*Webhook) {
	s.all.Store(policy.NewCandidates(slices.Concat(s.static, custom)))
}

// webhooks returns the webhooks, in the order in which they are called. If the custom
// resources are not listed yet, it waits for them; if ctx ends first, it returns an error.
func (s *Source) webhooks(ctx context.Context) (*policy.Candidates[*Webhook], error) {
	if s.resources != nil {
		if err := s.resources.follower.Await(ctx); err != nil {
			return nil, fmt.Errorf("the webhook configurations of %s are not known yet: %w", cluster.WebhookGroup, err)
		}
		s.resources.refresh()
	}
	return s.all.Load(), nil
}

// Handler returns the handler of the plugin without the functions Admit and Validate.
func (s *Source) Handler() (h admission.Handler) {
	if s.configured {
		h.Rules = s.rules
	}
	if s.resources != nil {
		h.Run = s.resources.follower.Run
	}
	return h
}

// rules returns the rules of the webhooks. If custom resources are enabled, the rules also select
// them, because writes of them are checked. Until they are known, the rules select everything.
func (s *Source) rules() (rules []admission.Rule) {
	if s.resources != nil {
		if !s.resources.follower.IsFollowing() {
			return []admission.Rule{admission.Any()}
		}
		rules = append(rules, customresource.Rule(s.kind.resources))
	}
	for _, w := range s.all.Load().All() {
		if w.rules {
			rules = append(rules, w.matcher.Rules()...)
		}
	}
	return rules
}
