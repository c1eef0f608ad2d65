package oracle_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// A suite describes how a plugin is compared.
type suite struct {
	name     string
	generate func(g *generator) *oracle.Case
	// pause is the longest time between two cases.
	pause    time.Duration
	variants []variant
	// gate is a feature gate that is off by default, without which no API server has
	// everything that the plugin reads; empty for none.
	gate featuregate.Feature
	// denies, changes and warns are the effects that the plugin has.
	denies, changes, warns bool
	// background says that Kubernetes' plugin has goroutines that outlive a case, so that it
	// uses the real clock.
	background bool
	// authorizer is the authorizer of the world of the tables; nil for none.
	authorizer func(t *testing.T) authorizer.UnconditionalAuthorizer
	// settle changes a generated object as an API server does before it calls plugins; nil
	// for nothing.
	settle func(*oracle.Case)
	// untabled says that there are no tables, because cases depend on other objects that the
	// generator creates.
	untabled bool
	// message is the Message of all cases.
	message func(string) string
	// removed is the command that runs a plugin that Kubernetes has removed. The suite is skipped if e2e/run did not
	// build it.
	removed string
	// getsConfig says that the command gets the configuration of the variant; otherwise it gets
	// commandConfig.
	getsConfig    bool
	commandConfig string
	// wrap wraps fastadmit's plugin; nil for nothing.
	wrap func(admission.Plugin) admission.Plugin
}

// A variant is a configuration of the plugin.
type variant struct {
	about   string
	config  string
	ours    string // fastadmit's configuration, if it differs
	options handlers.Options
	// world generates the cluster; nil for an empty one. The cases of the variant run in
	// several worlds.
	world func(g *generator) oracle.World
	// alike says that all worlds are equal, so that one is enough.
	alike bool
}

// worldsMax is the number of worlds of a variant with world.
const worldsMax = 50

// worlds returns the number of worlds of the variant.
func (v *variant) worlds() int {
	if v.world == nil || v.alike {
		return 1
	}
	return worldsMax
}

func (s *suite) implementations(t *testing.T, v *variant, world oracle.World) (upstream, ours oracle.Implementation) {
	t.Helper()
	plugin := find(t, s.name, v.options)
	if s.wrap != nil {
		plugin = s.wrap(plugin)
	}
	ours, err := oracle.NewOurs(plugin, cmp.Or(v.ours, v.config), world)
	if err != nil {
		t.Fatal(err)
	}
	if s.removed != "" {
		if _, err := os.Stat(s.removed); errors.Is(err, fs.ErrNotExist) {
			t.Skip("make e2e-full and e2e/run oracle build the release that had the plugin")
		}
		var config []string
		if s.getsConfig {
			config = []string{v.config}
		} else if s.commandConfig != "" {
			config = []string{s.commandConfig}
		}
		removed, err := oracle.StartRemoved(s.removed, s.name, s.changes, world, config...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := removed.Stop(); err != nil {
				t.Error(err)
			}
		})
		return removed, ours
	}
	setTolerationFlags(t, v.options)
	if s.gate != "" {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, s.gate, true)
	}
	upstream, err = oracle.NewUpstream(t.Context(), s.name, v.config, world)
	if err != nil {
		t.Fatal(err)
	}
	return upstream, ours
}

func find(t *testing.T, name string, options handlers.Options) admission.Plugin {
	t.Helper()
	for _, p := range handlers.InTree(options) {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("fastadmit has no plugin %s", name)
	return admission.Plugin{}
}

// setTolerationFlags sets the flags of kube-apiserver, which are global variables.
func setTolerationFlags(t *testing.T, options handlers.Options) {
	flags := pflag.NewFlagSet("", pflag.PanicOnError)
	defaulttolerationseconds.RegisterFlags(flags)
	if err := flags.Parse([]string{
		"--default-not-ready-toleration-seconds", itoa(options.Tolerations.NotReadyTolerationSeconds),
		"--default-unreachable-toleration-seconds", itoa(options.Tolerations.UnreachableTolerationSeconds),
	}); err != nil {
		t.Fatal(err)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// suites returns a suite for every plugin that both sides have.
func suites() []suite {
	one := []variant{{options: handlers.DefaultOptions()}}
	anything := func(g *generator) *oracle.Case {
		if g.in(2) {
			return g.pod()
		}
		return g.other()
	}
	return slices.Concat(grouped(), updated(), []suite{
		{name: "AlwaysAdmit", generate: anything, variants: one},
		{name: "AlwaysDeny", generate: anything, variants: one, denies: true},
		{name: "AlwaysPullImages", generate: (*generator).pod, variants: one, denies: true, changes: true},
		signers("CertificateApproval", func(g *generator) *oracle.Case { return g.signingCase("approval") }),
		signers("CertificateSigning", func(g *generator) *oracle.Case { return g.signingCase("status") }),
		certificateSubjectRestriction(),
		clusterTrustBundleAttest(),
		defaultIngressClass(),
		defaultStorageClass(),
		{name: "DefaultTolerationSeconds", generate: (*generator).pod, variants: tolerationVariants(), changes: true},
		denyExec("DenyEscalatingExec"),
		denyExec("DenyExecOnPrivileged"),
		{name: "DenyServiceExternalIPs", generate: (*generator).service, variants: one, denies: true},
		{name: "EventRateLimit", generate: (*generator).event, pause: 50 * time.Millisecond, variants: limitVariants(), denies: true},
		{name: "ExtendedResourceToleration", generate: (*generator).pod, variants: one, changes: true},
		{name: "LimitPodHardAntiAffinityTopology", generate: (*generator).pod, variants: one, denies: true},
		imagePolicySuite(),
		nodeRestriction(),
		ownerReferences(),
		podSecurity(),
		podSecurityPolicy(),
		limitRangerSuite(),
		{name: "NamespaceAutoProvision", generate: (*generator).somewhere, variants: phasesVariants(), changes: true},
		{name: "NamespaceExists", generate: (*generator).somewhere, variants: phasesVariants(), denies: true},
		{name: "NamespaceLifecycle", generate: (*generator).somewhere, variants: phasesVariants(), denies: true},
		initialResources(),
		initializersSuite(),
		persistentVolumeClaimResize(),
		persistentVolumeLabel(),
		podPreset(),
		{name: "PodNodeSelector", generate: (*generator).selectsNodes, variants: selectorVariants(), denies: true, changes: true},
		{name: "PodTolerationRestriction", generate: (*generator).tolerates, variants: restrictionVariants(), denies: true, changes: true},
		podTopologyLabelsSuite(),
		prioritySuite(),
		runtimeClassSuite(),
		{name: "ResourceQuota", generate: (*generator).quota, variants: quotaVariants(), denies: true, changes: true, background: true},
		{name: "SecurityContextDeny", generate: (*generator).pod, variants: one, denies: true, removed: "../.cache/kubernetes-v1.26"},
		serviceAccount(),
		{name: "StorageObjectInUseProtection", generate: (*generator).storage, variants: one, changes: true},
		taintNodesByCondition(),
		webhooksSuite("MutatingAdmissionWebhook"),
		webhooksSuite("ValidatingAdmissionWebhook"),
	})
}

func tolerationVariants() []variant {
	var all []variant
	for _, seconds := range [][2]int64{{300, 300}, {0, 60}, {-1, math.MaxInt64}} {
		v := variant{about: fmt.Sprintf("seconds %d and %d", seconds[0], seconds[1]), options: handlers.DefaultOptions()}
		v.options.Tolerations.NotReadyTolerationSeconds = seconds[0]
		v.options.Tolerations.UnreachableTolerationSeconds = seconds[1]
		all = append(all, v)
	}
	return all
}

func limitVariants() []variant {
	var all []variant
	for _, limits := range []string{
		`{"type":"Server","qps":5,"burst":9}`,
		`{"type":"Namespace","qps":1,"burst":3,"cacheSize":2}`,
		`{"type":"User","qps":2,"burst":3}`,
		`{"type":"SourceAndObject","qps":1,"burst":2,"cacheSize":40}`,
		`{"type":"User","qps":1,"burst":3,"cacheSize":2},{"type":"Server","qps":7,"burst":50},{"type":"Namespace","qps":3,"burst":1},` +
			`{"type":"User","qps":3,"burst":1}`,
	} {
		all = append(all, variant{
			about:   limits,
			config:  `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[` + limits + `]}`,
			options: handlers.DefaultOptions(),
		})
	}
	return all
}
