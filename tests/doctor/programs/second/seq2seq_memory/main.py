# rule: carried-state
# carrier: memory
# fix: .detach()
from seq2seq_memory_model import MemoryReader
from seq2seq_memory_train import fit

if __name__ == "__main__":
    fit(MemoryReader(width=4), segments=3)
