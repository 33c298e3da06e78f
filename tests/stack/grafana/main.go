// dashboards FILE…: decodes Grafana dashboards strictly by Grafana's own types (grafana-foundation-sdk), so that a member that is
// missing, mistyped or unknown is told by its path. Exit 1: some was.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The generated code gives an empty list of errors as an error that is not nil.
func is(err error) bool { return err != nil && err.Error() != "" }

func check(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict(raw); is(err) {
		return err
	}
	if err := board.Validate(); is(err) {
		return err
	}
	if len(board.Panels) == 0 {
		return fmt.Errorf("it has no panels")
	}
	return nil
}

func main() {
	plugins.RegisterDefaultPlugins()
	status := 0
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Printf("%s: %v\n", file, err)
			status = 1
		}
	}
	os.Exit(status)
}
