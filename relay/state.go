package relay

// State is where a session stands. States only ever advance in the order of this list.
type State uint8

const (
	StateHello      State = iota // gathering and judging the ClientHello
	StateClientInit              // replied; waiting for the 64 bytes that name the DC
	StateDialDC
	StateDialFront
	StateRelay
	StateFront
	StateDrain  // one direction is over, the other still delivers
	StateLinger // nothing is delivered any more; what still comes is read and discarded
	StateClosed // Out.Close was given
	numStates
)

var stateNames = [numStates]string{
	"hello", "client-init", "dial-dc", "dial-front", "relay", "front", "drain", "linger", "closed",
}

// String returns a name that serves as a metric label.
func (s State) String() string { return stateNames[s] }

// States lists all states, in order, for those who make a counter per state.
func States() []State {
	all := make([]State, numStates)
	for i := range all {
		all[i] = State(i)
	}
	return all
}
