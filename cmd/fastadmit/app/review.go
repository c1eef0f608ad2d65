package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// Exit codes of review.
const (
	exitDenied = 1
	exitBroken = 2
)

type reviewOptions struct {
	selection
	files, old  []string
	policyFiles []string
	// skipUntranslatable leaves out policies of other engines without a translation.
	skipUntranslatable bool
	evaluated          map[string]bool // the files in policyFiles
	state              []manifest.Item // of clusterState
	bindPolicies       string
	policyTexts        map[string]string // see report.Options, as for ruleTexts
	ruleTexts          map[string]string
	output             string
	operation          string
	namespace          string
	user               review.User
	extra              []string

	strict  bool
	explain bool

	noPods           bool
	podTemplatePaths map[string]string
	skipUnknown      []string
	warningsAsErrors bool
	quiet            bool
	registers        bool // objects are reviewed only if kube-apiserver calls fastadmit for them
	registered       registration.Options
	inCluster        bool // the objects that policies read are in a cluster, with or without --kubeconfig
}

func newReviewCommand(o *options) *cobra.Command {
	r := &reviewOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "review [FILE|FOLDER|-]...",
		Short: "Review manifests without a server: what would be denied or changed?",
		Long: `Runs the enabled plugins on each object, mutating plugins first. The objects come from files, from all
files in folders, and from standard input for "-": YAML or JSON, lists of objects, several documents in
a file, and recorded AdmissionReviews. If a workload is allowed, the objects that its controller would
create (for a Deployment a ReplicaSet, for that a Pod) are reviewed too, and shown below it.

Plugins see a new cluster in which every namespace exists, or the objects of --cluster-state-dir or
--kubeconfig. In addition they see the Namespaces, ServiceAccounts, LimitRanges, ResourceQuotas, classes
and so on among the reviewed objects. With --kubeconfig, all requests are dry runs, and nothing in the
cluster is changed. No plugin calls an address of its configuration, except with --allow-plugin-calls.
Objects get the defaults that plugins look at. Plugins do not check the objects for which kube-apiserver
would not call fastadmit: those in kube-system, kube-node-lease and fastadmit's own namespace, and those
that the section registration of --config excludes.

Exits with 0 if all objects are allowed, 1 if one is denied, 2 if an object could not be reviewed, if
there is nothing to review, or if the command is wrong. An object that no plugin checks is allowed too:
the output says so, and --strict makes it an error.`,
		Example: "  fastadmit review deploy/ pod.yaml --config=fastadmit.yaml\n" +
			"  kustomize build . | fastadmit review - --pod-security=restricted -o github\n" +
			"  fastadmit review new/ --old=old/ --enable-admission-plugins=AlwaysPullImages -o diff",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return manifestExtensions(), cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			return broken(r.run(cmd, append(r.files, paths...)))
		},
	}
	r.addReviewFlags(cmd)
	return cmd
}

func (r *reviewOptions) addReviewFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	r.addFlags(cmd)
	r.useKubeconfig("kubeconfig file of a cluster whose objects plugins see and whose custom resources are known; it is only read",
		"folder with objects in YAML or JSON that plugins see; without it and --kubeconfig, they see a new cluster")
	flags.StringSliceVarP(&r.files, "filename", "f", nil, "file or folder to review, - for standard input; same as an argument")
	flags.StringVar(&r.operation, "operation", "", "operation: CREATE, UPDATE or DELETE; if empty, UPDATE for objects in --old and CREATE for others")
	flags.StringSliceVar(&r.old, "old", nil, "files or folders with the objects before an UPDATE; if not set, an UPDATE changes nothing")
	flags.StringVarP(&r.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of objects without one")
	flags.BoolVar(&r.noPods, "no-workload-pods", false, "do not review the objects that controllers would create from workloads")
	r.addSkipFlag(flags)
	r.addPodSecurityFlag(cmd)
	flags.BoolVar(&r.strict, "strict", false, "exit with 2 if no plugin checks an object that its rules select, such as a pod in a "+
		"privileged namespace, if nothing that is enabled checks any object, if a failure is ignored because of its failurePolicy, "+
		"if a policy is not evaluated or names what does not exist, if a plugin is configured and not enabled, or if a chart or kustomization must be rendered first")
	flags.BoolVarP(&r.quiet, "quiet", "q", false, "with -o text, hide objects that are allowed without a patch or warning")
	flags.BoolVar(&r.explain, "explain", false, "also show for each plugin and policy whether it was asked and why, what it decided, the values in CEL "+
		"expressions, and the fields that it wrote; with -o "+strings.Join(report.ExplainFormats, ", "))
	r.addTrustFlags(flags)
	r.addSharedFlags(cmd)
	completeValues(cmd, "operation", string(codec.Create), string(codec.Update), string(codec.Delete))
	completeFiles(cmd, "filename", manifestExtensions()...)
	completeFiles(cmd, "old", manifestExtensions()...)
}

// addSharedFlags adds the flags that review and audit have in common.
func (r *reviewOptions) addSharedFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&r.output, "output", "o", "text", "format: "+strings.Join(report.Formats(), ", ")+
		"; object prints objects as they would be stored, diff the changes, response AdmissionReviews")
	r.addUserFlags(flags)
	flags.StringToStringVar(&r.podTemplatePaths, "pod-template-path", nil,
		"path of the pod template in custom workloads, as rollouts.argoproj.io=.spec.template")
	flags.BoolVar(&r.warningsAsErrors, "warnings-as-errors", false, "exit with 1 if there was a warning")
	r.addPolicyFlags(cmd)
	completeValues(cmd, "output", report.Formats()...)
}

// twin returns options for other plugins in the same cluster, with the same flags for it, for trust, and for
// policies without a binding.
func (r *reviewOptions) twin() *reviewOptions {
	own := *r.options // load changes it
	t := &reviewOptions{
		selection: selection{
			options: &own, flags: r.flags, untrusted: r.untrusted, allowCalls: r.allowCalls, allowOutside: r.allowOutside,
			interpretCEL: r.interpretCEL,
		},
		bindPolicies: r.bindPolicies, skipUntranslatable: r.skipUntranslatable, namespace: r.namespace,
	}
	t.cluster.kubeconfig, t.cluster.dir, t.cluster.kinds = r.cluster.kubeconfig, r.cluster.dir, r.cluster.kinds
	return t
}

// addPodSecurityFlag adds the flag that replaces a configuration of PodSecurity.
func (r *reviewOptions) addPodSecurityFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.podSecurity, "pod-security", "", "enable PodSecurity and enforce this level in namespaces without labels: "+
		"privileged, baseline or restricted, with :VERSION as in restricted:v1.36 if it is not to be the latest")
	completeValues(cmd, "pod-security", "privileged", "baseline", "restricted")
}

// addSkipFlag adds the flag for objects of unknown kinds.
func (r *reviewOptions) addSkipFlag(flags *pflag.FlagSet) {
	flags.StringSliceVar(&r.skipUnknown, "skip-unknown", nil,
		"skip these unknown kinds; without a value, all that may be custom ones, and documents that are not Kubernetes objects")
	flags.Lookup("skip-unknown").NoOptDefVal = review.SkipAllUnknown
}

// addUserFlags adds the flags for the user who sends objects.
func (r *reviewOptions) addUserFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.user.Username, "as", r.user.Username, "user who sends the objects")
	flags.StringSliceVar(&r.user.Groups, "as-group", r.user.Groups, "groups of the user; if not set, those that kube-apiserver adds for that name")
	flags.StringVar(&r.user.UID, "as-uid", "", "uid of the user")
	flags.StringArrayVar(&r.extra, "as-extra", nil, "extra attributes of the user, as key=value; may be repeated")
}

// addPolicyFlags adds the flags that name policies.
func (r *reviewOptions) addPolicyFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&r.policyFiles, "policies", nil,
		"files or folders with policies and bindings to evaluate; other objects in them, such as parameters, become part of the cluster; may be repeated")
	flags.StringVar(&r.bindPolicies, "bind-policies", "",
		"also evaluate policies without a binding, which kube-apiserver does not, as if they had one with this action: Deny, Warn or Audit")
	flags.Lookup("bind-policies").NoOptDefVal = policies.Actions[0]
	flags.BoolVar(&r.skipUntranslatable, "skip-untranslatable", false,
		"leave out policies of Kyverno and Gatekeeper in --policies that have no translation, and name them")
	completeFiles(cmd, "policies", manifestExtensions()...)
	completeValues(cmd, "bind-policies", policies.Actions...)
}

func (r *reviewOptions) run(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		return errors.New("name files or folders to review, or - for standard input")
	}
	if r.explain && !slices.Contains(report.ExplainFormats, r.output) {
		return fmt.Errorf("--explain: got -o %s, want one of %s", r.output, strings.Join(report.ExplainFormats, ", "))
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	writer, err := report.New(r.output, out, r.reportOptions("fastadmit review", cmd.OutOrStdout()))
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	items := manifest.Read(paths, cmd.InOrStdin(), r.trees())
	o, err := r.ready(cmd, items)
	if err != nil {
		if unwritten := errors.Join(r.reportFailure(writer, err), out.Flush()); unwritten != nil {
			return failed(unwritten)
		}
		return err
	}
	summary := report.Summary{EmulatedVersion: r.emulated.current().String(), Unused: r.unused}
	summary.PolicyNotes = append(r.noteInput(cmd.ErrOrStderr(), o, items), r.notePolicies(cmd.Context(), cmd.ErrOrStderr(), o.Chain)...)
	if len(items) == 0 {
		return failed(fmt.Errorf("there is nothing to review: no object in %s", strings.Join(paths, ", ")))
	}
	requests := r.newSeenRequests(items, o.State)
	err = review.Run(cmd.Context(), *o, items, func(result *report.Result) error {
		requests.add(result)
		summary.Add(result)
		r.noteAside(cmd.ErrOrStderr(), result)
		return writer.Write(result)
	})
	if err == nil {
		summary.PolicyNotes = append(summary.PolicyNotes, r.noteGiven(cmd.ErrOrStderr(), requests, o.Chain)...)
		if exceptions := o.Chain.Exceptions(); exceptions != nil {
			summary.Exceptions = exceptions.List()
		}
		err = writer.Close(&summary)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return failed(err)
	}
	r.noteDoubts(cmd.ErrOrStderr(), &summary)
	return r.verdict(&summary)
}

// ready prepares the review of items.
func (r *reviewOptions) ready(cmd *cobra.Command, items []manifest.Item) (*review.Options, error) {
	o, err := r.prepared()
	if err != nil {
		return nil, err
	}
	o.UnknownFields = true
	if len(r.old) > 0 {
		o.Old = manifest.Read(r.old, cmd.InOrStdin(), r.trees())
	}
	if o.State, err = r.readPolicies(items); err != nil {
		return nil, err
	}
	o.Definitions, r.registers = r.definitions(), true
	return o, r.prepare(cmd.Context(), o)
}

// definitions returns the CustomResourceDefinitions in the folder of the cluster. What is wrong with other objects there is said
// where plugins read them.
func (r *reviewOptions) definitions() (all []manifest.Item) {
	for _, item := range r.clusterState() {
		if item.Fault == nil && discovery.IsCRD(item.GroupVersionKind()) {
			all = append(all, item)
		}
	}
	return all
}

// inFile matches an error with its place in a file.
var inFile = regexp.MustCompile(`^([^\s:][^:]*):(\d+): (.*)$`)

// reportFailure writes errors in files of policies and configurations into a report that other programs read. They look there,
// and not at standard error.
func (r *reviewOptions) reportFailure(writer report.Writer, err error) error {
	_, isFailure := errors.AsType[*failure](err)
	if !isFailure || !slices.Contains([]string{"github", "html", "json", "junit", "sarif", "yaml"}, r.output) {
		return nil
	}
	var all []*report.Result
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimRight(line, "\n")
		if n := len(all); n > 0 && strings.HasPrefix(line, " ") { // where in the expression
			all[n-1].Message += "\n" + line
			continue
		}
		result := &report.Result{Decision: report.Broken, Message: line}
		if match := inFile.FindStringSubmatch(line); match != nil {
			result.File, result.Message = match[1], match[3]
			result.Line, _ = strconv.Atoi(match[2])
		}
		all = append(all, result)
	}
	var summary report.Summary
	for _, result := range all {
		summary.Add(result)
		if err := writer.Write(result); err != nil {
			return err
		}
	}
	return writer.Close(&summary)
}

// noteAside writes to standard error what a format that others read has no place for.
func (r *reviewOptions) noteAside(w io.Writer, root *report.Result) {
	root.Walk(func(result *report.Result, _ int) {
		at := strings.TrimPrefix(root.Location()+": ", ": ") + result.Object() + ": "
		if r.output == "response" && result.Decision == report.Broken {
			fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(at+result.Message))
		}
		if report.NeedsObjects(r.output) {
			for i := range result.Warnings {
				fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(at+"warning: "+result.Reported(&result.Warnings[i])))
			}
		}
	})
	if report.NeedsObjects(r.output) || report.NeedsResponse(r.output) {
		for _, f := range root.AllLeftOut() {
			fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(root.Location()+": "+root.Object()+": unchecked: "+f.String()))
		}
	}
}

// noteDoubts writes to standard error why a result may mean little, unless the format says so itself.
func (r *reviewOptions) noteDoubts(w io.Writer, summary *report.Summary) {
	if r.output == "github" {
		return
	}
	for _, doubt := range summary.Doubts() {
		fmt.Fprintf(w, "fastadmit: warning: %s\n", printable.Plain(doubt))
	}
}

// verdict returns the error that ends the command.
func (r *reviewOptions) verdict(s *report.Summary) error {
	switch {
	case s.Broken+s.Failed > 0:
		return &exit{exitBroken, nil}
	case s.Objects == s.Skipped:
		return &exit{exitBroken, errors.New("there is nothing to review: all objects were skipped")}
	case s.Denied > 0, s.Warnings > 0 && r.warningsAsErrors:
		return &exit{exitDenied, nil}
	case r.strict && (s.LeftOut > 0 || s.NothingChecked()):
		return &exit{exitBroken, fmt.Errorf("--strict: no plugin checked %s", report.Counted(s.Unchecked, "object"))}
	case r.strict && len(s.Idle) > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: %s checked no object: %s", s.Idle[0].Plugin, s.Idle[0].Message)}
	case r.strict && s.Ignored > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: %s", report.Counted(s.Ignored, "ignored failure"))}
	case r.strict && len(s.PolicyNotes) > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: %s", s.PolicyNotes[0].Message)}
	case r.strict && len(s.Unused) > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: %s", report.Unused(s.Unused[0]))}
	case r.strict && s.Unrendered > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: charts and kustomizations that must be rendered first: %d", s.Unrendered)}
	}
	return nil
}

// reportOptions are options for the output of a command to stdout.
func (r *reviewOptions) reportOptions(tool string, stdout io.Writer) report.Options {
	o := report.Options{Quiet: r.quiet, Tool: tool, Version: r.options.shownVersion(), Rules: make(map[string]string)}
	file, ok := stdout.(*os.File)
	o.Color = ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	for _, plugin := range r.options.table() {
		o.Rules[plugin.Name] = plugin.Summary
	}
	r.policyTexts = make(map[string]string)
	o.Policies, r.ruleTexts = r.policyTexts, o.Rules
	return o
}

// prepared returns the options of a review according to the flags.
func (r *reviewOptions) prepared() (*review.Options, error) {
	o := &review.Options{
		Namespace: r.namespace, Operation: codec.Operation(strings.ToUpper(r.operation)), User: r.user,
		WorkloadPods: !r.noPods, PodTemplatePaths: workload.KnownPaths(r.podTemplatePaths), SkipUnknown: r.skipUnknown,
		KeepObjects: report.NeedsObjects(r.output), KeepResponse: report.NeedsResponse(r.output), Explain: r.explain,
	}
	if !slices.Contains([]codec.Operation{"", codec.Create, codec.Update, codec.Delete}, o.Operation) {
		return nil, fmt.Errorf("--operation: got %q, want CREATE, UPDATE or DELETE", r.operation)
	}
	if err := workload.Paths(r.podTemplatePaths).Check(); err != nil {
		return nil, fmt.Errorf("--pod-template-path: %w", err)
	}
	for _, extra := range r.extra {
		key, value, ok := strings.Cut(extra, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--as-extra: got %q, want key=value", extra)
		}
		if o.User.Extra == nil {
			o.User.Extra = make(map[string][]string)
		}
		o.User.Extra[key] = append(o.User.Extra[key], value)
	}
	if o.User.Username == "" && (o.User.UID != "" || len(o.User.Groups)+len(o.User.Extra) > 0) {
		return nil, errors.New("--as-group, --as-uid and --as-extra need --as")
	}
	o.User.Groups = userGroups(o.User.Username, o.User.Groups)
	return o, nil
}

// userGroups returns the groups of a user, with those that kube-apiserver adds when
// somebody acts as the user (k8s.io/apiserver pkg/endpoints/filters/impersonation).
func userGroups(username string, given []string) []string {
	all := slices.Clone(given)
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok && len(given) == 0 {
		namespace, _, _ := strings.Cut(account, ":")
		all = append(all, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	if username != "" && username != "system:anonymous" && !slices.Contains(all, "system:authenticated") {
		all = append(all, "system:authenticated")
	}
	return all
}

// prepare creates the plugins and waits for the objects that they read from the
// cluster.
func (r *reviewOptions) prepare(ctx context.Context, o *review.Options) error {
	r.cluster.imagined = true
	loaded, err := r.load(ctx, nil)
	if err != nil {
		return err
	}
	o.Chain, o.Release = loaded.chain, r.emulated.current()
	var ask func(schema.GroupVersion) (*metav1.APIResourceList, error)
	if r.cluster.kubeconfig != "" {
		o.DryRun = true
		if err := r.cluster.reach(ctx); err != nil {
			return failed(err)
		}
		need := cluster.Discovered()
		if err := r.cluster.follow(ctx, []cluster.Need{need}, nil); err != nil {
			return failed(err)
		}
		discovered := cluster.DiscoveryIn(r.cluster.state.Load().View(need))
		ask = func(version schema.GroupVersion) (*metav1.APIResourceList, error) {
			return discovered.Resources(ctx, version)
		}
	}
	o.Resources = discovery.NewTable(ask)
	for _, plugin := range r.options.table() { // they know the resources of the kinds that they read
		for _, need := range plugin.Needs {
			if need.Kind != nil {
				o.Resources.Add(need.GroupVersionKind().Kind,
					discovery.Resource{GroupVersionResource: need.GroupVersionResource(), Namespaced: need.IsNamespaced()})
			}
		}
	}
	policies.AddResources(o.Resources)
	if r.registers {
		if o.Registration, err = r.registration(ctx, &loaded); err != nil {
			return err
		}
	}
	o.Cluster = r.cluster.state.Load()
	return failed(r.cluster.await(ctx))
}
