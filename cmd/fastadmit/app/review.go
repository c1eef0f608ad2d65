package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

type reviewOptions struct {
	selection
	files     []string
	output    string
	operation string
	namespace string
	username  string
}

func newReviewCommand(o *options) *cobra.Command {
	r := &reviewOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "review -f FILE",
		Short: "Review a manifest or a recorded AdmissionReview without a server",
		Long: "Runs the enabled plugins, mutating ones first, on each document of the files: YAML or\n" +
			"JSON, an AdmissionReview or a plain manifest. Prints the decision and the patch. A manifest\n" +
			"is taken as it is: kube-apiserver would fill in defaults first. With --kubeconfig, all are dry\n" +
			"runs: plugins do nothing in the cluster. Without it or --cluster-state-dir, there are the objects\n" +
			"of a new cluster, and each namespace. Exits with 1 if anything was denied.",
		Example: "  fastadmit review -f pod.yaml --enable-admission-plugins=AlwaysPullImages -o object",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	r.addFlags(flags)
	flags.StringSliceVarP(&r.files, "filename", "f", nil, "file to review, - for standard input")
	flags.StringVarP(&r.output, "output", "o", "text", "what to print: text, object (as it would be stored) or response (the AdmissionReview)")
	flags.StringVar(&r.operation, "operation", string(codec.Create), "what is done with a plain manifest: CREATE, UPDATE (of the same object) or DELETE")
	flags.StringVarP(&r.namespace, "namespace", "n", "default", "namespace of a plain manifest that names none")
	flags.StringVar(&r.username, "as", "", "user who sends a plain manifest")
	return cmd
}

func (r *reviewOptions) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if len(r.files) == 0 {
		return errors.New("name a file with -f, or - for standard input")
	}
	show, ok := map[string]func(io.Writer, *codec.Review) error{
		"text": printText, "object": printObject, "response": printResponse,
	}[r.output]
	if !ok {
		return fmt.Errorf("--output: got %q, want text, object or response", r.output)
	}
	r.cluster.imagined = true
	loaded, err := r.load(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.cluster.await(ctx); err != nil {
		return failed(err)
	}
	out := bufio.NewWriter(stdout)
	denied := false
	for _, file := range r.files {
		err := eachDocument(file, stdin, func(document []byte) error {
			allowed, err := r.review(ctx, loaded.chain, document, out, show)
			denied = denied || !allowed
			return err
		})
		if err != nil {
			return failed(errors.Join(fmt.Errorf("cannot review %s: %w", file, err), out.Flush()))
		}
	}
	if err := out.Flush(); err != nil || denied {
		return &failure{err}
	}
	return nil
}

// eachDocument calls do with each document of a file, as JSON.
func eachDocument(file string, stdin io.Reader, do func(document []byte) error) error {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		stdin = f
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(stdin))
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		if bytes.Equal(asJSON, []byte("null")) { // nothing but comments
			continue
		}
		if err := do(asJSON); err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// review answers one document and prints the answer.
func (r *reviewOptions) review(ctx context.Context, chain *handlers.Chain, document []byte, w io.Writer, show func(io.Writer, *codec.Review) error) (allowed bool, err error) {
	body, err := r.admissionReview(document)
	if err != nil {
		return false, err
	}
	mutated := codec.Acquire()
	defer mutated.Release()
	if err := mutated.Decode(body); err != nil {
		return false, err
	}
	for _, phase := range [...]handlers.Phase{handlers.Mutate, handlers.Validate} {
		if _, err := chain.Review(ctx, mutated, phase); err != nil {
			return false, err
		}
		if !mutated.Response.Allowed {
			break
		}
	}
	return mutated.Response.Allowed, show(w, mutated)
}

// admissionReview returns the document if it is an AdmissionReview, and one
// about it otherwise. Where there is a cluster it is a dry run, so that nothing is
// done there.
func (r *reviewOptions) admissionReview(document []byte) ([]byte, error) {
	var object struct {
		APIVersion string
		Kind       string
		Metadata   struct{ Name, Namespace string }
	}
	if err := json.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	if object.Kind == "AdmissionReview" {
		if !r.isDryRun() {
			return document, nil
		}
		return dryRun(document)
	}
	if object.Kind == "" || object.APIVersion == "" {
		return nil, fmt.Errorf("got kind %q and apiVersion %q, want both", object.Kind, object.APIVersion)
	}
	gvk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
	if object.Metadata.Namespace == "" {
		object.Metadata.Namespace = r.namespace
	}
	kind := map[string]string{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
	resource := map[string]string{"group": plural.Group, "version": plural.Version, "resource": plural.Resource}
	request := map[string]any{
		"uid":         "00000000-0000-0000-0000-000000000000",
		"kind":        kind,
		"requestKind": kind, "resource": resource, "requestResource": resource,
		"name": object.Metadata.Name, "namespace": object.Metadata.Namespace,
		"operation": r.operation, "dryRun": r.isDryRun(),
		"userInfo": map[string]string{"username": r.username},
		"object":   json.RawMessage(document),
	}
	switch codec.Operation(r.operation) {
	case codec.Create:
	case codec.Update:
		request["oldObject"] = request["object"]
	case codec.Delete:
		request["oldObject"], request["object"] = request["object"], nil
	default:
		return nil, fmt.Errorf("--operation: got %q, want CREATE, UPDATE or DELETE", r.operation)
	}
	return json.Marshal(map[string]any{"kind": "AdmissionReview", "apiVersion": codec.APIVersionV1, "request": request})
}

// isDryRun says that reviews are dry runs: what plugins do where files stand for a
// cluster is gone with the process.
func (r *reviewOptions) isDryRun() bool { return r.cluster.kubeconfig != "" }

// dryRun makes the request of an AdmissionReview a dry run.
func dryRun(document []byte) ([]byte, error) {
	var review, request map[string]json.RawMessage
	if err := json.Unmarshal(document, &review); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(review["request"], &request); err != nil || request == nil {
		return document, nil // what is wrong with it is said where it is read
	}
	request["dryRun"] = json.RawMessage("true")
	var err error
	if review["request"], err = json.Marshal(request); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}

// decision says in one line what became of a review.
func decision(review *codec.Review) string {
	response := &review.Response
	name := review.Name()
	if name == "" {
		name = review.Object.Get("metadata", "generateName").String()
	}
	said := "allowed"
	switch {
	case !response.Allowed:
		said = fmt.Sprintf("denied (%d %s): %s", response.Status.Code, response.Status.Reason, response.Status.Message)
	case len(response.Patch) > 0:
		said = "allowed with a patch"
	}
	return fmt.Sprintf("%s %s %q: %s", review.Operation(), review.Resource().Resource, name, said)
}

// printText prints the decision, the warnings and the patch for people.
func printText(w io.Writer, review *codec.Review) error {
	fmt.Fprintln(w, decision(review))
	for _, warning := range review.Response.Warnings() {
		fmt.Fprintf(w, "Warning: %s\n", warning)
	}
	if !review.Response.Allowed || len(review.Response.Patch) == 0 {
		return nil
	}
	var operations []json.RawMessage
	if err := json.Unmarshal(review.Response.Patch, &operations); err != nil {
		return err
	}
	for _, operation := range operations {
		fmt.Fprintf(w, "  %s\n", operation)
	}
	return nil
}

// printObject prints the object as it would be stored, or, so that the output
// stays YAML, a comment that says why it would not be.
func printObject(w io.Writer, review *codec.Review) error {
	if !review.Response.Allowed {
		_, err := fmt.Fprintf(w, "---\n# %s\n", strings.ReplaceAll(decision(review), "\n", "\n# "))
		return err
	}
	object, err := yaml.JSONToYAML(review.Object.Root().AppendJSON(nil))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", object)
	return err
}

// printResponse prints the AdmissionReview that the server would answer.
func printResponse(w io.Writer, review *codec.Review) error {
	_, err := fmt.Fprintf(w, "%s\n", review.AppendResponse(nil))
	return err
}
